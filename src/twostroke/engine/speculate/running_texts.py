"""Finds where the end of a running request's text occurred before in the same text.

A text is kept as a string with one character for each token, because Python searches strings at the speed of memory. No
index is made, so a text that cannot be guessed costs almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.engine.speculate.occurrences import SHORTEST, Occurrence

_RUNS = (8, SHORTEST)  # the longest comes first
_CHARACTERS = 0x110000
"""How many different characters there are for strings. A token becomes the character chr(id % this number), so two ids
may become the same one. A match of characters counts only if the token ids are equal too."""


class SearchedText:
    """A growing list of tokens, kept as a string, in which runs of tokens are searched. The caller keeps the list
    itself."""

    __slots__ = ("_characters",)

    def __init__(self) -> None:
        self._characters = ""

    def __len__(self) -> int:
        return len(self._characters)

    def add(self, tokens: Sequence[int]) -> None:
        """Add the tokens that are new since the last call. `tokens` is the whole list."""
        new = tokens[len(self._characters) :]
        self._characters += "".join([chr(token_id % _CHARACTERS) for token_id in new])

    def of_end(self, tokens: Sequence[int], depth: int, most: int) -> list[Occurrence]:
        """Returns positions in `tokens` before which the last tokens of `tokens` have occurred already: at most `most`,
        the latest first. All of `tokens` must have been added.

        A match has SHORTEST to `depth` tokens. Where there are long matches, only these are returned.
        """
        characters, length = self._characters, len(tokens)
        for size in _RUNS:
            if length <= size:
                continue
            found: list[Occurrence] = []
            run, end = characters[length - size :], length - 1
            for _ in range(most):
                begin = characters.rfind(run, 0, end)
                if begin < 0:
                    break
                place = begin + size
                matched = _agreeing(tokens, place, min(depth, place))
                if matched >= min(size, depth):
                    found.append(Occurrence(place, matched))
                end = place - 1
            if found:
                return found
        return []


def _agreeing(tokens: Sequence[int], place: int, longest: int) -> int:
    """Returns how many tokens before `place` are equal to those at the end, at most `longest`."""
    matched, end = 0, len(tokens) - 1
    while matched < longest and tokens[place - 1 - matched] == tokens[end - matched]:
        matched += 1
    return matched


class RunningTexts:
    """The text of each running request."""

    def __init__(self) -> None:
        self._seen: dict[str, SearchedText] = {}

    def grown(self, request_id: str, known: Sequence[int]) -> SearchedText:
        """Returns the request's text, with the new tokens of `known` added."""
        seen = self._seen.get(request_id)
        if seen is None:
            seen = self._seen[request_id] = SearchedText()
        seen.add(known)
        return seen

    def forget(self, request_id: str) -> None:
        """Drop the text of a request that has ended. An unknown id changes nothing."""
        self._seen.pop(request_id, None)
