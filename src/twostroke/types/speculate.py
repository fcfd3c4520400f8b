"""The ways of guessing tokens, by name.

Knows: words.
Must not know: what guesses.
"""

from __future__ import annotations

WAYS = ("auto", "off", "ngram", "suffix")
"""What every engine has."""
NO_WAYS = ("auto", "off")
"""What an engine that never guesses has."""
DRAFT, MEDUSA, EAGLE = "draft", "medusa", "eagle"
BY_MODEL = (DRAFT, MEDUSA, EAGLE)
"""What an engine has, too, that loaded a draft model or heads. Each is asked for as WAY:MODEL."""
SHIPPED_HEADS = (MEDUSA, EAGLE)
"""Those that may be asked for without a folder: some ship for the embedded model."""
