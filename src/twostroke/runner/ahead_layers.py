"""An executor of plans for several draft layers (MTP). Each layer makes one guess, and the layers run one after the
other.

Layers are counted from 0. At position t of a plan, layer k reads the token t + 1 + k of the text, and the result of
layer k - 1 for t. So all layers compute the same positions; the first one reads hidden states of the model. The first
pass of a call runs the first layer. Each further pass runs the next layer over the same rows, with one more guess at
their end. A layer that was not reached, because fewer guesses were wanted, reads its rows at the beginning of the next
call.

The last rows of a call depend on guesses. With n layers, these are the last n - 1 rows of the last layer. The next call
computes them again, so its plan begins n - 1 positions before the end of the text that was known.

Source: DeepSeek-V3, section 2.2 (DeepSeek-AI 2024); transformers' MtpModel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.program.values import Value
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.ahead import HiddenHistory
from twostroke.runner.runner import ModelRunner
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.result import StepResult


class BoundLayer(NamedTuple):
    """A draft layer with the runner and the memory of its program. states: the program's input, (T, D), one hidden
    state for each row. rows: the hidden states that the layer makes, (T, D), which the next layer reads."""

    runner: ModelRunner
    memory: StepMemory
    states: Value
    rows: Value


@dataclass(slots=True)
class _Reading:
    """How far the draft layers (MTP) have computed one sequence's rows, which begin at position `start`. layer: the
    next layer that runs over these rows. states: (rows, D), the input of that layer, which the layer before has made.
    tail: the model's hidden states from position tail_start to the last of these rows."""

    start: int
    layer: int
    states: F32Array
    tail: F32Array
    tail_start: int

    def stop_at(self, position: int) -> None:
        """Drops the sequence's rows from `position` on, because the next call computes them again. If the rows end
        before `position`, all of them are dropped, because positions between them and the new rows would be missing."""
        kept = position - self.start
        self.states = self.states[: kept if 0 < kept <= len(self.states) else 0]


_Open = tuple[_Reading, PlannedSequence]


class LayersExecutor:
    """Runs several draft layers; satisfies `speculate.draft.DraftExecutor`. layers: two or more, in order. max_rows:
    the largest number of rows that one step of a layer may have. width: the size of the hidden states that the history
    keeps for a position. enter: a function (out, rows) that makes the first layer's input, as in AheadExecutor."""

    def __init__(
        self,
        layers: Sequence[BoundLayer],
        history: HiddenHistory,
        width: int,
        max_rows: int,
        enter: Callable[[F32Array, F32Array], None],
    ) -> None:
        self._layers, self._history, self._enter = layers, history, enter
        self._width, self._max_rows = width, max_rows
        self._again = len(layers) - 1  # number of rows that are read again
        self._readings: dict[str, _Reading] = {}

    def execute(self, plan: Plan) -> StepResult:
        """Runs a plan whose sequences all have one role. With PREFILL, the first layer reads the model's hidden states
        of the plan's positions; rows that depended on guesses in the last call are read again. With DECODE, the next
        layer reads the rows that the layer before has made, and makes one more guess."""
        names = [each.request.request_id for each in plan.sequences]
        if plan.sequences[0].role is Role.DECODE:
            return self._run_next([self._readings[name] for name in names], plan.sequences, samples=True)
        self._finish(plan.sequences)
        taken = [self._taken(each) for each in plan.sequences]
        result, made = self._run(0, plan.sequences, np.concatenate(taken))
        for name, each, rows, states in zip(names, plan.sequences, taken, made, strict=True):
            kept = max(0, len(rows) - self._again)
            self._readings[name] = _Reading(each.start, 1, states, rows[kept:].copy(), each.start + kept)
        return result

    def forget(self, request_id: str) -> None:
        """Drops what is kept for a request that has ended. An unknown id changes nothing."""
        self._readings.pop(request_id, None)
        self._history.forget(request_id)

    def _finish(self, plans: Sequence[PlannedSequence]) -> None:
        """Prepares the sequences for a new call. Where the last call ended before all layers had run, the remaining
        layers now run over that call's rows, as far as these lie before the new plans' first positions."""
        open_ = [(self._readings[name], each) for each in plans if (name := each.request.request_id) in self._readings]
        for reading, each in open_:
            reading.stop_at(each.start)
        for layer in range(1, len(self._layers)):
            for part in self._parts([each for each in open_ if each[0].layer == layer and len(each[0].states)]):
                self._run_next([reading for reading, _ in part], [each for _, each in part], samples=False)

    def _parts(self, open_: Sequence[_Open]) -> Iterator[list[_Open]]:
        """Divides the sequences into steps of at most max_rows rows each."""
        part: list[_Open] = []
        rows = 0
        for each in open_:
            if part and rows + len(each[0].states) > self._max_rows:
                yield part
                part, rows = [], 0
            part.append(each)
            rows += len(each[0].states)
        if part:
            yield part

    def _run_next(self, readings: Sequence[_Reading], plans: Sequence[PlannedSequence], samples: bool) -> StepResult:
        """Runs the next draft layer over the rows of several sequences. readings: the state of each sequence; all have
        the same next layer. plans: the plans of these sequences in the present call. samples: whether the layer samples
        a guess for each sequence."""
        layer = readings[0].layer
        planned = [_shifted(reading, plan, samples) for reading, plan in zip(readings, plans, strict=True)]
        result, made = self._run(layer, planned, np.concatenate([each.states for each in readings]))
        for each, states in zip(readings, made, strict=True):
            each.layer, each.states = layer + 1, states
        return result

    def _run(
        self, layer: int, planned: Sequence[PlannedSequence], states: F32Array
    ) -> tuple[StepResult, list[F32Array]]:
        """Runs a layer. Returns the sampled tokens, and the layer's result for the rows of each sequence. states: what
        the layer reads: the results of the layer before, or for the first layer the model's hidden states."""
        bound, plan = self._layers[layer], Plan(0, tuple(planned))
        sizes = StepSizes(plan.num_tokens, len(planned), sum(each.sampled_rows for each in planned))
        if layer:
            bound.memory.fill(bound.states, sizes, states)
        else:
            self._enter(bound.memory.value(bound.states, sizes), states)
        result = bound.runner.execute(plan)
        made = np.array(bound.memory.numbers(bound.rows, sizes))
        ends = np.cumsum([each.num_tokens for each in planned])
        return result, np.split(made, ends[:-1])

    def _taken(self, planned: PlannedSequence) -> F32Array:
        """Returns the model's hidden states of a plan's positions, (rows, width), from the history or from the call
        before."""
        rows = np.empty((planned.num_tokens, self._width), np.float32)
        self._history.take(planned.request.request_id, planned.start, rows)
        before = self._readings.get(planned.request.request_id)
        if before is not None:  # positions that an earlier call has taken
            first = planned.start - before.tail_start
            again = before.tail[first:] if first >= 0 else before.tail[:0]
            rows[: len(again)] = again[: len(rows)]
        return rows


def _shifted(reading: _Reading, plan: PlannedSequence, samples: bool) -> PlannedSequence:
    """Returns the plan with which the next draft layer computes one sequence's rows. Layer k reads, for each row, the
    token k places after the one that layer 0 reads, so the first k tokens of the text are dropped. plan: the same
    sequence, with the text as layer 0 reads it, guesses included."""
    request = plan.request
    if samples:  # random draws depend on the place of a token in the output
        request = replace(request, prompt_token_ids=request.prompt_token_ids[reading.layer :])
    text = plan.known_token_ids[reading.layer :]
    return plan._replace(
        request=request, start=reading.start, num_tokens=len(reading.states), known_token_ids=text, samples=samples
    )
