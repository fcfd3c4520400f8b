"""Requests that make several answers and give the best of them: best_of, and beam search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from twostroke.types.errors import InvalidRequest

MAX_BEAMS = 64
NEVER = "never"

NOT_BESIDE_BEAMS: Mapping[str, tuple[Any, ...]] = {
    "temperature": (0, 1),
    "top_k": (0,),
    "top_p": (1,),
    "min_p": (0,),
    "typical_p": (1,),
    "top_n_sigma": (0,),
    "dynatemp_range": (0,),
    "xtc_probability": (0,),
    "mirostat": (0,),
    "adaptive_target": (-1,),
    "samplers": (None,),
}
"""The parameters that a beam search does not honour, each with the values at which they have no effect on it. A beam
search draws no token, as with a temperature of 0, and a temperature of 1 does not change the scores."""


class AnswersAsked(Protocol):
    """The fields of `SamplingParams` that the functions of this module read. `SamplingParams` calls these functions."""

    @property
    def n(self) -> int:
        """The number of answers that are given."""

    @property
    def best_of(self) -> int | None:
        """The number of answers that are made; None means n."""

    @property
    def num_answers(self) -> int:
        """best_of where it is set, else n."""

    @property
    def use_beam_search(self) -> bool:
        """Whether the answers are found by a beam search."""

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of an answer."""

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings."""


def num_looked_at(width: int, num_ends: int) -> int:
    """Returns how many continuations of its beams, best first, a beam search looks at after each step. Among so many,
    at least `width` do not end with an end token, if there are up to `num_ends` end tokens. As in transformers, stop
    strings do not change the number."""
    return max(2, 1 + num_ends) * width


def num_offered(params: AnswersAsked, num_ends: int) -> int:
    """Returns how many of the most likely next tokens a beam search needs for each beam. num_ends: the number of end
    tokens. With stop strings, this is `num_looked_at`, because all of these continuations may come from one beam.
    Without stop strings, only end tokens end an answer, so the number of beams plus num_ends is enough."""
    width = params.num_answers
    return num_looked_at(width, num_ends) if params.stop else width + num_ends


def early_stopping(name: str, value: Any) -> bool | str:
    """Returns `value` if it is True, False or "never". Raises InvalidRequest for any other value."""
    if isinstance(value, bool) or value == NEVER:
        found: bool | str = value
        return found
    raise InvalidRequest(f'{name} must be true, false or "never", not {str(value)[:80]!r}.', param=name)


def check_many_answers(params: AnswersAsked) -> None:
    """Raises InvalidRequest where the parameters of several answers contradict each other."""
    if params.best_of is not None and params.best_of < params.n:
        raise InvalidRequest(
            f"best_of ({params.best_of}) is below n ({params.n}).",
            param="best_of",
            why="The n best of best_of answers are given.",
        )
    if params.use_beam_search:
        _check_beams(params)
        return
    for name, neutral in (("length_penalty", 1), ("early_stopping", False)):
        if getattr(params, name) != neutral:
            raise InvalidRequest(f"{name} is a field of beam search.", param=name, fix="Set use_beam_search, too.")


def _check_beams(params: AnswersAsked) -> None:
    if not 2 <= params.num_answers <= MAX_BEAMS:
        raise InvalidRequest(
            f"A beam search needs 2 to {MAX_BEAMS} beams, not {params.num_answers}.",
            param="best_of",
            fix="Say in best_of how many beams there are; without it there are n.",
        )
    if params.max_tokens == 0:
        raise InvalidRequest("A beam search needs max_tokens of at least 1.", param="max_tokens")
    for name, neutral in NOT_BESIDE_BEAMS.items():
        if getattr(params, name) not in neutral:
            raise InvalidRequest(
                f"A beam search cannot use {name}.",
                param=name,
                why="A beam search draws no tokens at random.",
                fix=f"Leave out {name}, or use_beam_search.",
            )
