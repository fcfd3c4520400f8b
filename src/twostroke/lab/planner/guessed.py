"""Decode with guesses of which a given share is right: how many a step should verify, and what they gain."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.cost.shape import Segment, StepCost
from twostroke.engine.speculate.guess_limiter import GUESS_ROWS, GuessLimiter, StepShape
from twostroke.engine.speculate.proposer import LONGEST_GUESS
from twostroke.engine.speculate.verify_time import VerifyTime, decoding_rows


@dataclass(frozen=True, slots=True)
class GuessedDecode:
    """Decode with guesses. guesses: the draft tokens of each stream and step; 0 where none pay. rate_tokens_per_s: the
    tokens a second of all streams."""

    streams: int
    acceptance: float
    guesses: int
    rate_tokens_per_s: float


def guessed_decode(cost: StepCost, streams: int, position: int, acceptance: float, adapters: int = 0) -> GuessedDecode:
    """Returns the best number of guesses and the rate with them. adapters: the number of different adapters of the
    streams.

    The time of finding guesses is not included. Guesses that are looked up take next to no time, but a draft model
    needs steps of its own.
    """

    def segments(count: int, at: int, guesses: int) -> list[Segment]:
        found = decoding_rows(count, at, guesses)
        return [each._replace(adapter=index % adapters) for index, each in enumerate(found)] if adapters else found

    times = VerifyTime(cost, segments)
    longest = min(LONGEST_GUESS, GUESS_ROWS // streams)
    guesses = GuessLimiter(times).most(StepShape(streams, position), acceptance, acceptance, 0.0, 0.0, longest)
    tokens = streams * sum(acceptance**place for place in range(guesses + 1))
    return GuessedDecode(streams, acceptance, guesses, tokens / times.seconds(streams, position, guesses * streams))
