"""The ways of guessing tokens, by name."""

from __future__ import annotations

WAYS = ("auto", "off", "ngram", "suffix")
"""The ways that every engine has."""
NO_WAYS = ("auto", "off")
"""The ways of an engine that never guesses."""
DRAFT, MEDUSA, EAGLE, MTP = "draft", "medusa", "eagle", "mtp"
BY_MODEL = (DRAFT, MEDUSA, EAGLE)
"""The additional ways of an engine that loaded a draft model or heads. Each is asked for as WAY:MODEL."""
SHIPPED_HEADS = (MEDUSA, EAGLE)
"""The ways to guess for which no folder needs to be named: heads for the embedded model are part of the package."""
INSIDE = (MTP,)
"""The ways whose heads are in the model's own checkpoint; they are asked for by the word alone."""
LOADED = (*BY_MODEL, *INSIDE)
"""The ways that an engine offers where it loaded a model or heads that guess."""
