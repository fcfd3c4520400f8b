"""The ways of guessing tokens, by name.

Knows: words.
Must not know: what guesses.
"""

from __future__ import annotations

WAYS = ("auto", "off", "ngram", "suffix")
"""What every engine has."""
NO_WAYS = ("auto", "off")
"""What an engine that never guesses has."""
DRAFT = "draft"
"""What an engine with a draft model has, too."""
