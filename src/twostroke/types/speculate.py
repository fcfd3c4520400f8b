"""The names of the ways in which an engine guesses tokens (speculative decoding), as --speculate takes them."""

from __future__ import annotations

WAYS = ("auto", "off", "ngram", "suffix")
"""The ways to guess tokens that every engine has."""
NO_WAYS = ("auto", "off")
"""The ways to guess tokens that a request may ask for where the engine never guesses."""
DRAFT, MEDUSA, EAGLE, MTP = "draft", "medusa", "eagle", "mtp"
BY_MODEL = (DRAFT, MEDUSA, EAGLE)
"""The additional ways to guess tokens of an engine that loaded a draft model or heads. Users write them as WAY:MODEL.
"""
SHIPPED_HEADS = (MEDUSA, EAGLE)
"""The ways to guess for which no folder needs to be named: heads for the embedded model are part of the package."""
INSIDE = (MTP,)
"""The ways to guess tokens with heads from the model's own checkpoint. Users write the name of the way alone."""
LOADED = (*BY_MODEL, *INSIDE)
"""The ways to guess tokens that need a loaded draft model or heads. An engine offers those that it has loaded."""
