"""Finding marks in text that arrives in pieces.

Knows: strings.
Must not know: what the marks mean.
"""

from __future__ import annotations

from collections.abc import Sequence


def split_at(text: str, marks: Sequence[str]) -> tuple[str, str | None, str]:
    """(text before the first complete mark, that mark, the rest).

    Without a mark: (what can be no part of one, None, the end that may begin one). No mark may begin another.
    """
    places = [(place, mark) for mark in marks if (place := text.find(mark)) >= 0]
    if places:
        place, mark = min(places)
        return text[:place], mark, text[place + len(mark) :]
    held = max((_begun(text, mark) for mark in marks), default=0)
    return text[: len(text) - held], None, text[len(text) - held :]


def starts_with(text: str, mark: str) -> bool | None:
    """None where more text must come before it is known."""
    if text.startswith(mark):
        return True
    return None if mark.startswith(text) else False


def _begun(text: str, mark: str) -> int:
    """How many characters of `mark` stand at the end of `text`, at most all but one."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
