"""GuessLimiter: how many guesses a step verifies, and of which requests. Guessing must not lower throughput.

A step takes longer with each row; an accepted guess saves a stream one step. So guesses are taken in descending order
of their chances, up to the number that gives the most tokens a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from twostroke.engine.speculate.verify_time import VerifyTime

GUESS_ROWS = 32
"""The most guesses of a step, of all sequences together."""
MARGIN = 0.03
"""A step with guesses must be predicted to give more tokens a second than one without, by at least this share. The
errors of predictions are about as large."""
LEAST_CHANCE = 0.05
PROMPT_ROWS = 128
"""In a step with prompts, one more row is assumed to take as long as one more row does in a step that computes this
many rows of prompts."""
_FINE = 8
_COARSE = 4


class StepShape(Struct, frozen=True):
    """The decoding streams of a step. position: about how many tokens a stream's text has, on average. beside_prompts:
    True when prompts wait to be computed, too.

    room_rows: the rows that are left for guesses. bound_s: the most seconds that the step may take; infinity without
    objectives.
    """

    streams: int
    position: int
    beside_prompts: bool = False
    room_rows: int = 64
    bound_s: float = math.inf


class GuessLimiter:
    """Decides how many guesses a step verifies. It predicts the seconds of a step with `VerifyTime`, which learns how
    long steps with guesses took."""

    def __init__(self, times: VerifyTime, margin: float = MARGIN) -> None:
        self.times = times
        self._margin = margin

    def counts(self, shape: StepShape, chances: Sequence[Sequence[float]]) -> list[int]:
        """Returns how many tokens of each guess are verified. chances: for each token, the chance that it and all
        tokens before it are accepted."""
        ranked = [(chance, index) for index, each in enumerate(chances) for chance in each if chance >= LEAST_CHANCE]
        if len(chances) > 1:  # the chances of a single guess fall already, so their order is right
            ranked.sort(key=lambda each: -each[0])
        del ranked[max(0, shape.room_rows) :]
        taken = self._beside_prompts(shape, ranked) if shape.beside_prompts else self._best(shape, ranked)
        counts = [0] * len(chances)
        for _, index in ranked[:taken]:
            counts[index] += 1
        return counts

    def most(self, shape: StepShape, first: float, later: float, asking_s: float, token_s: float, longest: int) -> int:
        """Returns how many tokens a proposer should guess for each stream; 0 when calling it does not pay. One call
        takes `asking_s` for all streams, and `token_s` more for each token of a guess.

        first, later: the acceptance rates of a guess's first token, and of a token after an accepted one.
        """
        seconds = self.times.seconds
        best, found = shape.streams / seconds(shape.streams, shape.position, 0) * (1 + self._margin), 0
        tokens, chance = float(shape.streams), 1.0
        for count in range(1, longest + 1):
            chance *= first if count == 1 else later
            tokens += shape.streams * chance
            step_s = seconds(shape.streams, shape.position, count * shape.streams)
            if step_s > shape.bound_s or (count > 1 and count * shape.streams > shape.room_rows):
                break
            spent_s = step_s + asking_s + count * token_s
            if tokens / spent_s > best:
                best, found = tokens / spent_s, count
        return found

    def token_s(self, shape: StepShape) -> float:
        """Returns the seconds of one token of one stream without guesses. That is also what an accepted guess saves."""
        return self.times.seconds(shape.streams, shape.position, 0) / shape.streams

    def _best(self, shape: StepShape, ranked: Sequence[tuple[float, int]]) -> int:
        """Returns the number of guesses that gives the most tokens a second."""
        seconds, streams, position = self.times.seconds, shape.streams, shape.position
        best, taken = streams / seconds(streams, position, 0) * (1 + self._margin), 0
        tokens = float(streams)
        for count, (chance, _) in enumerate(ranked, 1):
            tokens += chance
            if count > _FINE and count % _COARSE and count < len(ranked):
                continue
            step_s = seconds(streams, position, count)
            if step_s > shape.bound_s:
                break
            if tokens / step_s > best:
                best, taken = tokens / step_s, count
        return taken

    def _beside_prompts(self, shape: StepShape, ranked: Sequence[tuple[float, int]]) -> int:
        """Returns how many guesses are worth their time in a step with prompts. The cost of a guess is one more row.
        Its gain is its chance times the time of a token in a step without prompts."""
        row_s = self.times.row_s(shape.streams, shape.position, PROMPT_ROWS) * (1 + self._margin)
        worth_s = self.token_s(shape)
        return sum(chance * worth_s > row_s for chance, _ in ranked)
