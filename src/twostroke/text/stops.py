"""Finds stop strings in text that arrives in pieces, and never returns a part of a stop string.

The text ends at the stop string that is complete first; of two that end at the same character, the longer one counts.
The result depends on the text alone, not on the pieces in which it arrives.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence


class StopMatcher:
    """`feed(piece)` returns the text that is certain, and the stop string found or None. `finish()` returns the text
    held back.

    As in Knuth-Morris-Pratt, it counts for each stop string how many of its first characters stand at the end of the
    text. The longest such beginning is held back. The cost is one step for each character and stop string. After a
    match, all text that is fed is dropped.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(sorted(set(stops), key=lambda stop: (-len(stop), stop)))
        self._borders = tuple(_borders(stop) for stop in self._stops)
        self._matched = [0] * len(self._stops)
        self._held = ""
        self._done = False

    def fork(self) -> StopMatcher:
        """Returns another matcher that has been fed the same text."""
        made = copy.copy(self)
        made._matched = list(self._matched)
        return made

    def feed(self, piece: str) -> tuple[str, str | None]:
        """Takes more text. Returns the text that is certain, and the stop string found or None."""
        if self._done:
            return "", None
        if not self._stops:
            return piece, None
        text = self._held + piece
        for place, character in enumerate(piece, start=len(self._held) + 1):
            found = self._step(character)
            if found is not None:
                self._done, self._held = True, ""
                return text[: place - len(found)], found
        return self._sure(text), None

    def feed_unstopped(self, piece: str) -> str:
        """Takes more text of an answer that must not end yet (min_tokens), even if a stop string is complete in it.
        Returns the text that cannot be part of a stop string any more."""
        for character in piece:
            self._step(character)
        return self._sure(self._held + piece)

    def finish(self) -> str:
        """Returns the text held back, which did not become a stop string."""
        rest, self._held, self._done = self._held, "", True
        return rest

    def _sure(self, text: str) -> str:
        """Holds back the end of the text that may begin a stop string; returns the rest."""
        sure = len(text) - max(self._matched, default=0)
        self._held = text[sure:]
        return text[:sure]

    def _step(self, character: str) -> str | None:
        """Moves every stop string on by one character. Returns the longest one that is complete, or None."""
        found: str | None = None
        for place, stop in enumerate(self._stops):
            matched, borders = self._matched[place], self._borders[place]
            while matched and stop[matched] != character:
                matched = borders[matched - 1]
            if stop[matched] == character:
                matched += 1
            if matched == len(stop):
                found = found or stop
                matched = borders[-1]
            self._matched[place] = matched
        return found


def _borders(stop: str) -> tuple[int, ...]:
    """Returns, for each beginning of `stop`, the length of its longest proper beginning that is also its end."""
    borders = [0] * len(stop)
    length = 0
    for place in range(1, len(stop)):
        while length and stop[place] != stop[length]:
            length = borders[length - 1]
        if stop[place] == stop[length]:
            length += 1
        borders[place] = length
    return tuple(borders)
