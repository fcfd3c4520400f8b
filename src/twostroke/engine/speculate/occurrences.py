"""Where the end of a text occurred before: an index over a growing list of tokens.

The index has hash chains, as LZ77 compressors have. For each run of 2 tokens, and of 8, it knows the latest position
after such a run, and from each position the previous one after the same run. Adding a token costs the same however long
the text is, and so does a look-up. Long runs occur rarely, so few positions must be compared. The index holds only
integers, nothing that a garbage collector must visit.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

SHORTEST = 2
"""Fewer tokens than this are not looked up: a single token occurs nearly everywhere and is little evidence."""
_RUNS = (8, SHORTEST)  # the longest comes first
_NOWHERE = -1


class Occurrence(NamedTuple):
    """An earlier occurrence of the end of a text: the `matched` tokens before position `place` equal the text's last
    ones."""

    place: int
    matched: int


class _Chains:
    """The hash chains of one text: they lead from a run of `size` tokens to all positions after such a run, the latest
    first."""

    __slots__ = ("latest", "previous", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.latest: dict[int, int] = {}  # hash of a run -> the latest place after it
        self.previous = array("i")  # place -> the place before it after a run with the same hash

    def add(self, tokens: Sequence[int]) -> None:
        size, latest, previous = self.size, self.latest, self.previous
        first, end = max(len(previous), size), len(tokens)
        previous.extend([_NOWHERE] * (min(first, end) - len(previous)))
        runs = zip(*(tokens[first - size + i : max(0, end - size + i)] for i in range(size)), strict=True)
        for place, run in enumerate(map(hash, runs), first):
            previous.append(latest.get(run, _NOWHERE))
            latest[run] = place


class Occurrences:
    """Finds where a run of tokens occurred before in one list.

    The list itself belongs to the caller and only grows; its tokens are added here once each, in order.
    """

    __slots__ = ("_chains",)

    def __init__(self) -> None:
        self._chains = tuple(_Chains(size) for size in _RUNS)

    def add(self, tokens: Sequence[int]) -> None:
        """Index the tokens that are new since the last call. `tokens` is the whole text. A run of tokens can be found
        once another token comes after it."""
        for chains in self._chains:
            chains.add(tokens)

    def of_end(self, text: Sequence[int], tokens: Sequence[int], depth: int, most: int) -> list[Occurrence]:
        """Finds where the last tokens of `text` also stand in `tokens`, which were added before. Returns the positions
        after these matches, the latest first, and at most `most` of them.

        A match has SHORTEST to `depth` tokens. Where there are long matches, only these are returned. `text` and
        `tokens` may be the same list.
        """
        length = len(text)
        for chains in self._chains:
            size, previous = chains.size, chains.previous
            if length < size:
                continue
            found: list[Occurrence] = []
            place = chains.latest.get(hash(tuple(text[length - size :])), _NOWHERE)
            for _ in range(most):
                if place == _NOWHERE:
                    break
                longest, matched = min(depth, place, length), 0
                while matched < longest and tokens[place - 1 - matched] == text[length - 1 - matched]:
                    matched += 1
                if matched >= min(size, depth):  # else a different run has the same hash
                    found.append(Occurrence(place, matched))
                place = previous[place]
            if found:
                return found
        return []
