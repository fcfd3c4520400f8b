"""The ways of guessing tokens, by name."""

from __future__ import annotations

WAYS = ("auto", "off", "ngram", "suffix")
"""What every engine has."""
NO_WAYS = ("auto", "off")
"""What an engine that never guesses has."""
DRAFT, MEDUSA, EAGLE, MTP = "draft", "medusa", "eagle", "mtp"
BY_MODEL = (DRAFT, MEDUSA, EAGLE)
"""What an engine has, too, that loaded a draft model or heads. Each is asked for as WAY:MODEL."""
SHIPPED_HEADS = (MEDUSA, EAGLE)
"""The ways that may be asked for without a folder: some ship for the embedded model."""
INSIDE = (MTP,)
"""The ways whose heads are in the model's own checkpoint; they are asked for by the word alone."""
LOADED = (*BY_MODEL, *INSIDE)
"""The ways that an engine offers where it loaded a model or heads that guess."""
