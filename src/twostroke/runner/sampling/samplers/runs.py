"""Finds where the end of a sequence occurs earlier in it, for the sampler DRY. A run is such a repetition: its length
is the number of tokens up to an earlier place that are the same as the last tokens of the sequence.

`runs_at_end` finds them from the tokens alone. `KeptRuns` keeps them from row to row, so that a token costs one
comparison with each known token, however much the text repeats itself.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from twostroke.types.plan import PlannedSequence

LEAST_TOKENS = 512
"""Up to this many tokens, the repetitions that DRY needs are searched anew for each row, because that is quicker than
updating stored ones."""
MOST_STEPS = 16
"""Where a sequence has more new tokens than this, the repetitions that DRY needs are searched anew, and not updated
token by token."""
MOST_KEPT_TOKENS = 1 << 22
"""The most tokens for which one thread stores the lengths of repetitions for DRY, in all sequences together. Each token
takes 26 bytes."""
_MOST_COMPARED = 2
"""`runs_at_end` compares tokens one by one, until it has made this many comparisons for each token of the text. Then
`_all_at_once` takes over."""


def same_beginnings(tokens: Sequence[int]) -> list[int]:
    """Returns a number for each place: how many tokens from this place on are the same as those from the beginning on.
    (The Z algorithm; D. Gusfield, Algorithms on Strings, Trees, and Sequences, 1997, section 1.4.)"""
    size, left, right = len(tokens), 0, 0
    found = [size] * size
    for place in range(1, size):
        length = min(right - place, found[place - left]) if place < right else 0
        while place + length < size and tokens[length] == tokens[place + length]:
            length += 1
        if place + length > right:
            left, right = place, place + length
        found[place] = length
    return found


def runs_at_end(tokens: list[int], breakers: Set[int]) -> Mapping[int, int]:
    """Finds where the last tokens of a sequence occur earlier in it. For each earlier occurrence of the last token, the
    result maps its index to the number of tokens up to there that are the same as those at the end. A repetition stops
    at a breaker. The mapping is in the order of indices, or in the reverse order."""
    size, found, place, compared = len(tokens), dict[int, int](), -1, 0
    if size < 2 or tokens[-1] in breakers:
        return found
    last, end = tokens[-1], size - 1
    while compared < _MOST_COMPARED * size:
        try:
            place = tokens.index(last, place + 1, end)
        except ValueError:
            return found
        found[place] = length = _length(tokens, place, breakers)
        compared += length
    return _all_at_once(tokens, breakers)


def _length(tokens: list[int], place: int, breakers: Set[int]) -> int:
    """Returns how many tokens up to index `place` are the same as those at the end of the list, at least one. Counting
    stops before a breaker."""
    length, end = 1, len(tokens) - 1
    while length <= place:
        token = tokens[end - length]
        if tokens[place - length] != token or token in breakers:
            break
        length += 1
    return length


def _all_at_once(tokens: list[int], breakers: Set[int]) -> Mapping[int, int]:
    """Does the work of `runs_at_end` in time proportional to the number of tokens. Comparing at each earlier occurrence
    takes time that grows with the square of that number, if one token is repeated all along."""
    backwards, end = tokens[::-1], len(tokens) - 1
    most = next((place for place, token in enumerate(backwards) if token in breakers), len(tokens))
    lengths = enumerate(same_beginnings(backwards))
    return {end - place: min(length, most) for place, length in lengths if place and length}


class KeptRuns:
    """Stores, for each index in one sequence, how many tokens up to there are the same as those at the end of the
    sequence. DRY needs these lengths. size: the number of tokens of the sequence. known: the list of tokens that the
    sequence had when these lengths were last used."""

    def __init__(self, sequence: PlannedSequence, breakers: Set[int]) -> None:
        self.known, self.breakers, self.size = sequence.known_token_ids, breakers, len(sequence.known_token_ids)
        self._prompt = sequence.request.prompt_token_ids
        room = 2 * self.size + 2
        self._tokens, self._differs = np.zeros(room, np.int32), np.zeros(room, np.bool_)
        self._runs, self._next = np.zeros(room, np.int32), np.zeros(room, np.int32)  # see `add`
        self._tokens[: self.size] = self.known
        found = runs_at_end(self._tokens[: self.size].tolist(), breakers)
        self._runs[np.fromiter(found.keys(), np.int64, len(found)) + 1] = list(found.values())

    def follows(self, sequence: PlannedSequence) -> bool:
        """Returns whether the stored tokens are the first tokens of the sequence, so that `add` can go on with the
        rest. A list of tokens only grows, so tokens are compared only where the sequence has a new list object."""
        known, request = sequence.known_token_ids, sequence.request
        if request.prompt_token_ids is not self._prompt or not 0 <= len(known) - self.size <= MOST_STEPS:
            return False
        if known is self.known and not request.steered:
            return True
        start = len(self._prompt)
        own: list[int] = self._tokens[start : self.size].tolist()
        return list(known[start : self.size]) == own

    def add(self, token_id: int) -> None:
        """Appends the next token. For each earlier index p, updates the length of the repetition that ends there: how
        many tokens up to p are the same as those at the end. If the token at p is the new one, this is the length at p
        - 1, plus one; otherwise it is 0. The length for p is stored at index p + 1."""
        size = self.size
        if size + 2 > len(self._tokens):
            self._grow()
        if token_id in self.breakers:
            self._runs[: size + 1] = 0
        else:
            longer, differs = self._next[1 : size + 1], self._differs[:size]
            np.add(self._runs[:size], 1, out=longer)
            np.not_equal(self._tokens[:size], token_id, out=differs)
            np.copyto(longer, 0, where=differs)
            self._runs, self._next = self._next, self._runs
        self._tokens[size] = token_id
        self.size = size + 1

    def with_more(self, known: Sequence[int]) -> KeptRuns:
        """Returns a copy of this object to which the rest of `known` was added. known: begins with the tokens of this
        object."""
        other = copy.copy(self)
        other._grow()
        for token_id in known[self.size :]:
            other.add(token_id)
        return other

    def following(self, window: int, least: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Returns the token after each place where at least `least` of the sequence's last tokens are repeated, and the
        length of each repetition. window: the number of tokens at the end that are searched."""
        start = self.size - window
        places = start + np.flatnonzero(self._runs[start + 1 : self.size] >= max(1, least))
        lengths = np.minimum(self._runs[places + 1], places - (start - 1)).astype(np.int32)
        enough = lengths >= least
        return self._tokens[places[enough] + 1], lengths[enough]

    def _grow(self) -> None:
        """Replaces each array by a copy of twice the size. Copies of this object share the old arrays, but not the new
        ones."""
        self._tokens, self._differs, self._runs, self._next = (
            np.concatenate([each, np.zeros_like(each)])
            for each in (self._tokens, self._differs, self._runs, self._next)
        )


class RecentRuns(threading.local):
    """Stores the repetitions (KeptRuns) of the sequences that this thread sampled last. They only save time: stored
    tokens are compared with the sequence's tokens before they are used, so results are the same without them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptRuns] = OrderedDict()
        self._num_tokens = 0

    def of(self, sequence: PlannedSequence, breakers: Set[int]) -> KeptRuns:
        """Returns the lengths of the repetitions at the end of a sequence. Where lengths are stored for the first
        tokens of the sequence, only the later tokens are added."""
        name, known = sequence.request.request_id, sequence.known_token_ids
        kept = self._kept.get(name)
        if kept is None or kept.breakers != breakers or not kept.follows(sequence):
            self._forget(name)
            kept = self._kept[name] = KeptRuns(sequence, breakers)
            self._num_tokens += kept.size
            while self._num_tokens > MOST_KEPT_TOKENS and len(self._kept) > 1:
                self._forget(next(iter(self._kept)))
            return kept
        self._kept.move_to_end(name)
        if sequence.end - len(sequence.draft_token_ids) < len(known):
            return kept.with_more(known)  # the last tokens are guesses, which may turn out wrong
        kept.known = known
        for token_id in known[kept.size :]:
            kept.add(token_id)
            self._num_tokens += 1
        return kept

    def _forget(self, name: str) -> None:
        gone = self._kept.pop(name, None)
        self._num_tokens -= 0 if gone is None else gone.size


RUNS = RecentRuns()
