"""Draft tokens of a step: guesses of the tokens after the known ones, verified together with the last known token."""

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
    """The interface of speculative decoding to the scheduler: it guesses tokens, and decides how many guesses pay. It
    must not raise."""

    @property
    def asleep(self) -> Mapping[str, int]:
        """The requests for which the drafter will have no guesses for a while, each with the length of its text, in
        tokens, at which it is asked again."""

    def guess(self, streams: Sequence[Stream], shape: StepShape) -> Mapping[str, Guesses]:
        """Returns guesses for the next step by request id: tokens of the vocabulary, at most `Stream.most` of them for
        each stream."""

    def observe(self, accepted: Mapping[str, int], measured_s: float) -> None:
        """Note that a step was run. accepted: for each request that had draft tokens, how many were accepted.
        measured_s: the step's seconds; 0 when its time is no measure of later ones."""

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """Note that a request has ended."""


PROMISED_SHARE = 0.8
"""The share of a promised gap between tokens that a step with guesses may be predicted to take."""
LONGEST_PAUSE_STEPS = 32
"""The drafter is asked at least once in this many steps, so that it learns how long steps without guesses take."""
STREAMS_A_STEP = 4
"""When the drafter has no guesses, it is not asked for some steps (`Pause`): one step more for each STREAMS_A_STEP
decoding sequences. So it is asked about several sequences at once, instead of in most steps about one."""


class Pause:
    """Counts the steps in which the drafter has guesses for no sequence, so that it is not asked. In a step without
    guesses each decoding sequence gets one token, so the number of these steps is known in advance."""

    def __init__(self) -> None:
        self._steps_left = self._streams = 0

    def goes_on(self, streams: int) -> bool:
        """Returns True when the drafter is not asked in this step either. streams: the number of decoding sequences;
        when it grows, the pause ends."""
        self._steps_left = self._steps_left - 1 if streams <= self._streams else 0
        self._streams = streams
        return self._steps_left > 0

    def begin(self, decoding: Sequence[Decoding], asleep: Mapping[str, int]) -> None:
        """Begin a pause after a step for which the drafter had no guesses. asleep: see Drafter."""
        until = asleep.get
        rests = [until(s.request.request_id, 0) - len(s.known) for s in decoding if not s.request.steered]
        rest = min(rests, default=LONGEST_PAUSE_STEPS)
        self._steps_left = min(LONGEST_PAUSE_STEPS, rest + len(decoding) // STREAMS_A_STEP) if rest > 0 else 0

    def end(self) -> None:
        """End the pause, so that the drafter is asked in the next step. Drafts calls this when a sequence has ended:
        another sequence may take its place, and `goes_on` notices only a larger number of sequences."""
        self._steps_left = 0


class Drafts:
    """Asks the drafter (speculative decoding) once a step, and keeps its guesses within the limits of the step. Without
    a drafter there are no guesses.

    state_page_tokens: the tokens of a page when states are kept; 0 when only K and V are kept. After a wrong guess a
    state goes back to the beginning of the step. The rows before the wrong guess are then computed again without
    guesses, so they are never computed a third time. Guesses end at the end of a page, so that snapshots are taken
    there as without guesses.
    """

    def __init__(self, drafter: Drafter | None, limits: SchedulerLimits, state_page_tokens: int = 0) -> None:
        self._drafter = drafter if limits.max_draft_tokens else None
        self._limits, self._page_tokens = limits, state_page_tokens
        self._pause, self._asked = Pause(), False

    def of_step(self, decoding: Sequence[Decoding], beside_prompts: bool) -> dict[str, tuple[int, ...]]:
        """Returns the guesses by request id. decoding: all sequences that decode in the step. beside_prompts: True when
        prompts are to be computed in the same step."""
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
        """Tell the drafter how many guesses of a step were accepted, and how long the step took."""
        if self._drafter is not None and self._asked:
            drafted = [each for each in plan.sequences if each.draft_token_ids] if plan.num_draft_tokens else ()
            tokens = result.sampled
            accepted = {s.request.request_id: max(0, len(tokens.get(s.request.request_id, ())) - 1) for s in drafted}
            self._drafter.observe(accepted, measured_s)

    def ended(self, sequence: Decoding) -> None:
        """Note that a sequence has ended."""
        self._pause.end()
        if self._drafter is not None:
            self._drafter.ended(sequence.request, sequence.known)

    def _most(self, sequence: Decoding) -> int:
        """Returns how many guesses this sequence may have, apart from the room in the step."""
        left = sequence.request.max_tokens - sequence.num_output - 1
        return min(left, -len(sequence.known) % self._page_tokens) if self._page_tokens else left

    def _room(self, decoding: Sequence[Decoding], beside_prompts: bool) -> int:
        """Returns the most guesses that this step may verify. When prompts are to be computed, guesses take at most
        half of the rows that are left, or prompts could wait for ever."""
        left = self._limits.max_step_tokens - sum(sequence.remaining for sequence in decoding)
        return max(0, min(left // 2 if beside_prompts else left, self._limits.max_draft_tokens))
