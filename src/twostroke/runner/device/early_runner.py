"""Steps that a device begins early, so that it does not wait for the host between two steps.

    host     plan n   | wait for n | commit n, plan n+1 | wait for n+1 | ...
    device   n        | n+1                             | n+2

While a step runs, the next one is queued after it by a guess of its plan (`early_steps`). Its token ids are copied on
the device from the results of the step before. The executor's interface is the usual one: it takes a plan and returns
the plan's result. A row that was begun is dropped where the plan does not ask for it, for example because its sequence
has ended. The plan's other rows are computed after the rows that were begun. Rows do not depend on one another, so all
tokens are the same as those of whole steps.

A dropped row has written K and V of one position that no sequence has computed. The device runs steps in the order in
which they were started, so a sequence that gets the page later also writes it later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from twostroke.ops.operands import I32Array, U8Array
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.device.early_steps import following, is_same
from twostroke.runner.device.rows import SAMPLE_RESULT, Rows
from twostroke.runner.device.sampler import DeviceSampler, SampledRows, WantedRows
from twostroke.runner.runner import ModelRunner, no_delay
from twostroke.runner.samplers import Sampled
from twostroke.runner.step_inputs import write_sequences
from twostroke.types.errors import BackendError
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.result import StepResult

SLOTS = 4
"""How many steps may have results that the host has not read. There are at most three: two steps of one plan (rows that
were begun early, and the plan's other rows), and the step after them."""


class EarlyForward(Protocol):
    """A program bound to its memory on a device. The device runs steps in the order in which they were started, and the
    host does not wait for them."""

    def begin(
        self,
        asked: Rows,
        lists: U8Array,
        follows: Sequence[tuple[int, I32Array]],
        sizes: StepSizes,
        slot: int,
        result_bytes: int,
    ) -> None:
        """Starts a step and the sampling of its rows, without waiting for it. asked, lists: what is sampled for each
        row; see SamplingForward.sampled. slot: the number by which the step's results, of result_bytes for each row,
        are read later.

        follows: for each earlier step from which rows get their tokens, its slot and pairs (N, 2). A pair is a row of
        the new step and the row of the earlier step that samples its token. In the copy to the device, the pairs lie
        after `asked` and before `lists`.
        """

    def results(self, slot: int, row_results: Rows) -> float:
        """Waits for the step with the number `slot` and fills in its results. Returns how many seconds the device
        worked on it."""


@dataclass(slots=True)
class _Begun:
    """A step that the device has started and whose results are not read yet. ordered: its sequences, in the order of
    its rows. wanted: the inputs of its sampling. found: the sequences whose samples will be read; `keep` removes those
    that the plan does not contain. tokens: the tokens that the step before has sampled, by request id, once they are
    known."""

    slot: int
    ordered: Sequence[PlannedSequence]
    wanted: WantedRows
    found: Sequence[SampledRows]
    row_results: Rows
    tokens: Mapping[str, int] = field(default_factory=dict)
    device_s: float = 0.0

    def keep(self, plan: Plan) -> set[str]:
        """Compares this step with the plan, which was made after the step had begun. Returns the request ids of the
        sequences that the plan contains in the same form. The samples of all other sequences will not be read."""
        tokens, begun = self.tokens, {each.request.request_id: each for each in self.ordered}
        same = {
            name
            for each in plan.sequences
            if (name := each.request.request_id) in begun and is_same(each, begun[name], tokens.get(name))
        }
        if len(same) < len(self.ordered):
            self.found = [each for each in self.found if each.sequence.request.request_id in same]
        return same

    def goes_on(self, sequences: Sequence[PlannedSequence]) -> bool:
        """Returns whether `sequences` are exactly this step's sequences in the same order, each with one row that
        samples."""
        if not len(self.found) == len(self.ordered) == len(sequences):
            return False
        return all(one.request is other.request for one, other in zip(self.ordered, sequences, strict=True))


class EarlyRunner:
    """Executes plans on a device, and begins the next step early. Satisfies `engine.executor.Executor`. plain: runs the
    plans that need more than the tokens that a device samples. kept: how many sequences were begun early and then were
    in the next plan. dropped: how many were begun early in vain."""

    def __init__(
        self,
        plain: ModelRunner,
        forward: EarlyForward,
        sampler: DeviceSampler,
        memory: StepMemory,
        clock: Callable[[], float],
        delay: Callable[[], float] = no_delay,
    ) -> None:
        self._plain, self._forward, self._sampler, self._memory = plain, forward, sampler, memory
        self._clock, self._delay = clock, delay
        self._early: _Begun | None = None
        self._slot = 0
        self.kept = self.dropped = 0

    def execute(self, plan: Plan) -> StepResult:
        early, self._early = self._early, None
        self.dropped += 0 if early is None else len(early.found)
        if plan.state_copies or plan.page_copies or any(each.scores for each in plan.sequences):
            return self._plain.execute(plan)
        asked_s = self._clock()
        same = set[str]() if early is None else early.keep(plan)
        later = following(plan)
        if not (same or later):
            return self._plain.execute(plan)
        parts = [early] if early is not None and same else []
        self.kept += len(same)
        self.dropped -= len(same)
        rest = [each for each in plan.sequences if each.request.request_id not in same]
        if rest:
            made = self._begin(rest, ())
            if made is None:
                return self._plain.execute(plan)
            parts.append(made)
        following_step = self._begin_early(later, parts)
        for part in parts:
            part.device_s = self._forward.results(part.slot, part.row_results)
        model_end_s = self._clock()
        if not all(self._sampler.has_all(part.found, part.row_results) for part in parts):
            return self._plain.execute(plan)  # this step needs logits, which the early step has overwritten
        sampled = Sampled({}, {})
        for part in parts:
            tokens, failed = self._sampler.choose(plan, (list(part.found), part.row_results))
            sampled.tokens.update(tokens)
            sampled.failed.update(failed)
        if following_step is not None:
            following_step.tokens = {name: tokens[-1].token_id for name, tokens in sampled.tokens.items()}
        self._early = following_step
        waited_s = model_end_s - asked_s
        # The work that a prompt's step did before the prompt came does not count for that step.
        early_s = 0.0 if rest else max(0.0, parts[0].device_s - waited_s)
        sampling_s = self._clock() - model_end_s
        return StepResult(*sampled, waited_s + early_s, sampling_s, delayed_s=self._delay(), early_s=early_s)

    def _begin_early(self, later: Sequence[PlannedSequence], parts: Sequence[_Begun]) -> _Begun | None:
        """Starts the step of the next plan, as it is guessed. later: its sequences. parts: the one or two steps in
        which the device computes the present plan. Returns None where the device cannot start the step. The step then
        runs when its plan is executed, and raises the error there."""
        if not later:
            return None
        try:
            return self._begin(later, parts)
        except BackendError:
            return None

    def _begin(self, sequences: Sequence[PlannedSequence], parts: Sequence[_Begun]) -> _Begun | None:
        """Starts a step of these sequences. parts: earlier steps whose tokens are not read yet; the device copies the
        tokens from their results into the inputs of this step. Returns None where a sequence must be sampled on the
        host."""
        follows = _follows(sequences, parts)
        wanted = None
        if len(parts) == 1 and parts[0].goes_on(sequences):
            wanted = self._sampler.wanted_next(parts[0].wanted, sequences)
        if wanted is None:
            wanted = self._sampler.wanted(sequences, sum(pairs.nbytes for _, pairs in follows))
        if any(each.reason is not None for each in wanted.found):
            return None
        sizes = write_sequences(sequences, self._memory)
        slot = self._slot = (self._slot + 1) % SLOTS
        self._forward.begin(wanted.asked, wanted.lists, follows, sizes, slot, SAMPLE_RESULT.itemsize)
        row_results = np.zeros(len(wanted.asked), SAMPLE_RESULT)
        return _Begun(slot, sequences, wanted, wanted.found, row_results)


def _follows(sequences: Sequence[PlannedSequence], parts: Sequence[_Begun]) -> list[tuple[int, I32Array]]:
    """Returns the argument `follows` of `EarlyForward.begin` for a new step of `sequences`. parts: the earlier steps,
    whose tokens are not read yet. For each of them, the result has its slot and pairs of rows: a row of the new step,
    and the row of the earlier step that samples this row's token."""
    rows = {each.request.request_id: row for row, each in enumerate(sequences)} if parts else {}
    found: list[tuple[int, I32Array]] = []
    for part in parts:
        pairs = [(rows[name], each.first) for each in part.found if (name := each.sequence.request.request_id) in rows]
        if pairs:
            found.append((part.slot, np.array(pairs, np.int32)))
    return found
