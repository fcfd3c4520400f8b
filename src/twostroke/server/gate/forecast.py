"""Estimates the queue wait (Retry-After) from the cost model, corrected by recent steps."""

from __future__ import annotations

from collections.abc import Container, Sequence

from msgspec import Struct

from twostroke.cost.shape import Segment
from twostroke.engine.observer import NoObserver, Observer
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.estimates.window import Window
from twostroke.types.event import FinishedEvent
from twostroke.types.output import Timings
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.result import StepResult

OUTPUTS_KEPT = 64
UNKNOWN_OUTPUT_TOKENS = 128


class Room(Struct, frozen=True):
    """The most sequences and positions that one step may have."""

    max_sequences: int
    max_step_tokens: int


class TypicalAnswer(NoObserver):
    """Estimates how many tokens an answer has, from the latest answers. Registered as an observer of the engine."""

    def __init__(self) -> None:
        self._outputs = Window(OUTPUTS_KEPT)
        self._typical = float(UNKNOWN_OUTPUT_TOKENS)

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        """Adds the length of an answer to those that the estimate is made from."""
        if finished.num_output_tokens:
            self._outputs.add(finished.num_output_tokens)
            self._typical = self._outputs.quantile(0.5) or self._typical


class Forecast(TypicalAnswer):
    """Predicts how long a request waits for its first token. Registered as an observer of the engine. Another thread
    may call wait_s: it reads each value whole, as of the latest step or of the step before."""

    def __init__(self, times: StepTime, room: Room) -> None:
        super().__init__()
        self._times = times
        self._room = room
        self._last: tuple[Sequence[PlannedSequence], Container[str]] = ((), ())

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """Corrects the cost model, and remembers the running sequences."""
        if plan.sequences and not (result.cold or result.faulty):
            step_s = max(duration_s, result.model_s + result.sampling_s)
            self._times.observe(plan.sequences, step_s - result.pieces_s)
        self._last = (plan.sequences, result.sampled)

    def wait_s(self, requests: int, tokens: int, places_free: bool = True) -> float:
        """Returns the seconds until this many waiting requests, with this many prompt tokens, have their first token.
        places_free: whether waiting requests use the batch's free places at once. If it is False, as when requests wait
        despite free places, a running request must end before each admission."""
        planned, sampled = self._last
        going = [s for s in planned if s.request.request_id in sampled]
        streams = [Segment.decode(s.start + s.num_tokens) for s in going[: self._room.max_sequences]]
        free = max(0, self._room.max_sequences - len(streams)) if places_free else 0
        return max(self._prompts_s(streams, tokens), self._places_s(streams, requests - free, going))

    def _prompts_s(self, streams: Sequence[Segment], tokens: int) -> float:
        """Returns the seconds until these prompt tokens are computed, in chunks of the size that running streams leave
        free in each step."""
        if tokens <= 0:
            return 0.0
        chunk = min(tokens, max(1, self._room.max_step_tokens - len(streams)))
        return self._times.usual_s([*streams, Segment.prefill(0, chunk, True)]) * tokens / chunk

    def _places_s(self, streams: Sequence[Segment], missing: int, going: Sequence[PlannedSequence]) -> float:
        """Returns the seconds until `missing` of the running sequences have ended, so that waiting requests get their
        places. If S sequences run and an answer has L tokens, S / L of them end in a step. going: the running
        sequences, whose prompts show how long a usual prompt is."""
        if missing <= 0 or not streams:
            return 0.0
        steps = missing * self._typical / len(streams)
        # Each admitted request brings a prompt, so a step contains as many prompts as places that become free.
        prompts = sum(len(s.request.prompt_token_ids) for s in going) / self._typical
        chunk = min(round(prompts), self._room.max_step_tokens - len(streams))
        prompt = [Segment.prefill(0, chunk, True)] if chunk > 0 else []
        return steps * self._times.usual_s([*streams, *prompt])


class Listeners:
    """Passes the engine's events on to several observers. Satisfies engine.observer.Observer."""

    def __init__(self, *each: Observer) -> None:
        self._each = each

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        for one in self._each:
            one.on_step(plan, result, duration_s)

    def on_first_token(self, ttft_s: float, /) -> None:
        for one in self._each:
            one.on_first_token(ttft_s)

    def on_next_tokens(self, gaps_s: Sequence[float], /) -> None:
        for one in self._each:
            one.on_next_tokens(gaps_s)

    def on_finish(self, finished: FinishedEvent, timings: Timings, /) -> None:
        for one in self._each:
            one.on_finish(finished, timings)
