"""A draft layer (MTP, EAGLE) as an executor of plans. It reads the model's hidden states at the positions where they
are known. Position t of a plan holds the token t + 1 of the text, and reads the hidden state at t."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twostroke.models.common.blocks.heads.ahead import AheadProgram
from twostroke.ops.operands import F32Array
from twostroke.ops.program.values import Value
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.runner.runner import ModelRunner
from twostroke.types.plan import Plan, Role
from twostroke.types.request import Request
from twostroke.types.result import SampledToken, StepResult

KEPT_BYTES = 64 << 20
"""The most bytes of hidden states that are stored until the draft layer reads them. Beyond it, the states of the oldest
request are dropped."""


class HiddenHistory:
    """Keeps the model's hidden states of known positions until the draft layer takes them. The model's runner calls
    `read` after each step, as it does with every StepReader.

    values: the values of the model's program whose rows are kept, each (T, D); a position's rows are joined along D.
    wants: returns whether a request's hidden states are kept.
    """

    def __init__(self, memory: StepMemory, values: Sequence[Value], wants: Callable[[Request], bool]) -> None:
        self._memory, self._values, self._wants = memory, values, wants
        self._kept: OrderedDict[str, list[tuple[int, F32Array]]] = OrderedDict()
        self.num_bytes = 0

    def read(self, plan: Plan, sizes: StepSizes, sampled: Mapping[str, Sequence[SampledToken]]) -> None:
        """Keeps the hidden states of the step that the model has just run. A guess's position is kept only if the guess
        was right. See StepReader."""
        found: list[F32Array] = []
        begin = 0
        for sequence in plan.sequences:
            first, begin = begin, begin + sequence.num_tokens
            request_id = sequence.request.request_id
            if not self._wants(sequence.request):
                continue
            found = found or [self._memory.numbers(value, sizes) for value in self._values]
            wrong = max(0, sequence.sampled_rows - len(sampled.get(request_id, ())))
            piece = np.concatenate([rows[first : begin - wrong] for rows in found], axis=1)
            self._kept.setdefault(request_id, []).append((sequence.start, piece))
            self.num_bytes += piece.nbytes
        while self.num_bytes > KEPT_BYTES:
            self.forget(next(iter(self._kept)))

    def take(self, request_id: str, start: int, out: F32Array) -> None:
        """Moves the hidden states of positions from `start` on into `out` (count, all widths); they are no longer kept.

        Positions that were not computed, such as those of a shared prefix, give zeros. States of earlier positions are
        dropped too.
        """
        out[...] = 0.0
        left: list[tuple[int, F32Array]] = []
        end = start + len(out)
        for first, rows in self._kept.get(request_id, ()):
            begin, stop = max(first, start), min(first + len(rows), end)
            if begin < stop:
                out[begin - start : stop - start] = rows[begin - first : stop - first]
            if first + len(rows) > end:
                left.append((first, rows))
            else:
                self.num_bytes -= rows.nbytes
        if left:
            self._kept[request_id] = left
        else:
            self._kept.pop(request_id, None)

    def forget(self, request_id: str) -> None:
        """Drops the hidden states of a request that has ended. An unknown id changes nothing."""
        self.num_bytes -= sum(rows.nbytes for _, rows in self._kept.pop(request_id, ()))


class AheadExecutor:
    """Runs a draft layer; satisfies `speculate.draft.DraftExecutor`. width: the size of the hidden states that the
    history keeps for a position.

    enter: a function (out, rows) that makes the hidden states that the layer reads. out: (T, D), in the layer's memory.
    rows: (T, width), from the history.
    """

    def __init__(
        self,
        made: AheadProgram,
        runner: ModelRunner,
        memory: StepMemory,
        history: HiddenHistory,
        width: int,
        enter: Callable[[F32Array, F32Array], None],
    ) -> None:
        self._made, self._runner, self._memory = made, runner, memory
        self._history, self._width, self._enter = history, width, enter
        self._own: dict[str, F32Array] = {}

    def execute(self, plan: Plan) -> StepResult:
        """Runs the draft layer for a plan whose sequences all have one role. With PREFILL, the layer reads the model's
        hidden states of the plan's positions. With DECODE, it guesses one more token after its own last guess, and
        reads the hidden state that it made itself."""
        sizes = StepSizes(plan.num_tokens, len(plan.sequences), sum(each.sampled_rows for each in plan.sequences))
        if plan.sequences[0].role is Role.PREFILL:
            self._enter(self._memory.value(self._made.states, sizes), self._taken(plan))
        else:
            states = np.stack([self._own[each.request.request_id] for each in plan.sequences])
            self._memory.fill(self._made.states, sizes, states)
        result = self._runner.execute(plan)
        own = np.array(self._memory.numbers(self._made.own, sizes))
        self._own = {
            each.request.request_id: row
            for each, row in zip([each for each in plan.sequences if each.samples], own, strict=True)
        }
        return result

    def _taken(self, plan: Plan) -> F32Array:
        """Removes the model's hidden states of all rows of a plan from the history, and returns them, (rows, width)."""
        rows, end = np.empty((plan.num_tokens, self._width), np.float32), 0
        for each in plan.sequences:
            begin, end = end, end + each.num_tokens
            self._history.take(each.request.request_id, each.start, rows[begin:end])
        return rows


def native_call(ops: Any, name: str, operands: Sequence[Any]) -> Callable[[F32Array, F32Array], None]:
    """Returns a function (out, rows) that calls an op with a result and an input. operands: the op's operands after
    these two."""

    def call(out: F32Array, rows: F32Array) -> None:
        getattr(ops, name)(out, rows, *operands)

    return call
