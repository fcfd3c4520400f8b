"""Draft tokens of a step: guesses of what follows the known tokens, verified next to the last of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from twostroke.engine.scheduler.limits.heavy_masks import HEAVY_S, mask_s
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.sequence import Sequence as Decoding
from twostroke.engine.speculate.guess_limiter import StepShape
from twostroke.engine.speculate.guesser import Guesses, Stream
from twostroke.types.plan import Plan
from twostroke.types.request import Request
from twostroke.types.result import StepResult


class Drafter(Protocol):
    """What guesses, and decides how many guesses pay (`speculate.guesser.Guesser`). It must not raise."""

    @property
    def asleep(self) -> Mapping[str, int]:
        """For each request that need not be asked about now, the length of its text at which it is asked about again.
        """

    def guess(self, streams: Sequence[Stream], shape: StepShape) -> Mapping[str, Guesses]:
        """Guesses for the next step by request id: tokens of the vocabulary, no more than a stream has room for."""

    def observe(self, accepted: Mapping[str, int], measured_s: float) -> None:
        """The step was run. accepted: for each request that had draft tokens, how many were accepted. measured_s: 0
        where the step's time is no measure of later ones.
        """

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """A request has ended."""


PROMISED_SHARE = 0.8
"""The share of a promised gap between tokens that a step with guesses may be predicted to take."""
LONGEST_PAUSE_STEPS = 32
"""The drafter is asked at least once in this many steps, to learn how long steps without guesses take."""
STREAMS_A_STEP = 4
"""With this many streams they are looked at one step later than the first of them must be, with twice as many two steps
later: so those that can be asked for again are asked for together, and most steps ask for none."""


class Pause:
    """How many steps come before any stream need be asked for. A step without guesses has one more token of each stream
    that decodes, so this is known before."""

    def __init__(self) -> None:
        self._steps_left = self._streams = 0

    def goes_on(self, streams: int) -> bool:
        """Whether this step, too, is without guesses. A stream more ends the pause."""
        self._steps_left = self._steps_left - 1 if streams <= self._streams else 0
        self._streams = streams
        return self._steps_left > 0

    def begin(self, decoding: Sequence[Decoding], asleep: Mapping[str, int]) -> None:
        """The step that was just asked for has no guesses. asleep: see Drafter."""
        until = asleep.get
        rests = [until(s.request.request_id, 0) - len(s.known) for s in decoding if not s.request.steered]
        rest = min(rests, default=LONGEST_PAUSE_STEPS)
        self._steps_left = min(LONGEST_PAUSE_STEPS, rest + len(decoding) // STREAMS_A_STEP) if rest > 0 else 0

    def end(self) -> None:
        """Another stream may come in the place of one that has left."""
        self._steps_left = 0


class Drafts:
    """Asks the drafter once a step and keeps its draft tokens within the limits of the step. Without a drafter:
    nothing.

    state_page_tokens: 0 where nothing is kept but K and V. A state goes back after a wrong guess to where the step
    began. It never goes back twice over the same rows, because what is computed again has no guesses after it. Guesses
    end where a page does, so that snapshots are taken there as without guesses.
    """

    def __init__(self, drafter: Drafter | None, limits: SchedulerLimits, state_page_tokens: int = 0) -> None:
        self._drafter = drafter if limits.max_draft_tokens else None
        self._limits, self._page_tokens = limits, state_page_tokens
        self._pause, self._asked = Pause(), False

    def of_step(self, decoding: Sequence[Decoding], beside_prompts: bool) -> dict[str, tuple[int, ...]]:
        """The guesses by request id. decoding: all sequences that decode in the step."""
        self._asked = False
        if self._drafter is None or not decoding or self._pause.goes_on(len(decoding)):
            return {}
        self._asked = True
        found = self._ask(self._drafter, decoding, beside_prompts)
        if not found:
            self._pause.begin(decoding, self._drafter.asleep)
        return found

    def _ask(self, drafter: Drafter, decoding: Sequence[Decoding], beside_prompts: bool) -> dict[str, tuple[int, ...]]:
        asleep = drafter.asleep.get
        awake = [
            s
            for s in decoding
            if len(s.known) >= asleep(s.request.request_id, 0) and not s.request.steered and s.remaining == 1
            and mask_s(s) <= HEAVY_S  # each guess needs a mask
        ]
        room = self._room(decoding, beside_prompts)
        streams = [Stream(s.request, s.known, min(room, self._most(s))) for s in awake]
        most = {stream.request.request_id: stream.most for stream in streams}
        position = sum(len(s.known) for s in decoding) // len(decoding)
        found: dict[str, tuple[int, ...]] = {}
        bound_s = PROMISED_SHARE * min([s.objectives.itl_s or math.inf for s in decoding])
        shape = StepShape(len(decoding), position, beside_prompts, room, bound_s)
        for request_id, guesses in drafter.guess(streams, shape).items():
            draft = tuple(guesses.token_ids[: min(room, most[request_id])])
            if draft:
                found[request_id] = draft
                room -= len(draft)
        return found

    def observe(self, plan: Plan, result: StepResult, measured_s: float) -> None:
        """A step was run."""
        if self._drafter is not None and self._asked:
            drafted = [each for each in plan.sequences if each.draft_token_ids] if plan.num_draft_tokens else ()
            tokens = result.sampled
            accepted = {s.request.request_id: max(0, len(tokens.get(s.request.request_id, ())) - 1) for s in drafted}
            self._drafter.observe(accepted, measured_s)

    def ended(self, sequence: Decoding) -> None:
        """A sequence has left."""
        self._pause.end()
        if self._drafter is not None:
            self._drafter.ended(sequence.request, sequence.known)

    def _most(self, sequence: Decoding) -> int:
        """Guesses that this sequence may have, whatever the step has room for."""
        left = sequence.request.max_tokens - sequence.num_output - 1
        return min(left, -len(sequence.known) % self._page_tokens) if self._page_tokens else left

    def _room(self, decoding: Sequence[Decoding], beside_prompts: bool) -> int:
        """The most draft tokens that this step may verify. Where prompts are to be computed, draft tokens leave half of
        the rows, and at least one, or prompts could wait for ever.
        """
        left = self._limits.max_step_tokens - sum(sequence.remaining for sequence in decoding)
        return max(0, min(left // 2 if beside_prompts else left, self._limits.max_draft_tokens))
