"""One normal form of text, shared by the held-out check, the augmenter and the score."""

import re

_NOT_WORD = re.compile(r"[^a-z0-9]+")


def normalise(text: str) -> str:
    """Lower-case `text`, turn every run of other characters than a-z and 0-9 into one space, and strip the ends."""
    return _NOT_WORD.sub(" ", text.lower()).strip()
