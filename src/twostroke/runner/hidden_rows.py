"""Keeps hidden states of a step for the heads that guess tokens from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from twostroke.ops.operands import F32Array
from twostroke.ops.program.values import Value
from twostroke.ops.step_memory import StepMemory, StepSizes
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken


class StepReader(Protocol):
    """Reads values of a step before the next one overwrites them."""

    def read(self, plan: Plan, sizes: StepSizes, sampled: Mapping[str, Sequence[SampledToken]]) -> None:
        """Copies the values that are needed later, such as hidden states, from the step's memory. Called after the
        step's tokens were sampled; the sequences of the plan do not contain these tokens yet."""


class LastRows:
    """Keeps, for each sequence that sampled in the last step, the hidden state from which its last token was sampled.
    Satisfies StepReader.

    value: the hidden states of the rows that need logits, (R, D).
    """

    def __init__(self, memory: StepMemory, value: Value) -> None:
        self._memory, self._value = memory, value
        self._rows: F32Array | None = None
        self._places: dict[str, tuple[int, int]] = {}

    def read(self, plan: Plan, sizes: StepSizes, sampled: Mapping[str, Sequence[SampledToken]]) -> None:
        chosen: list[int] = []
        self._places, begin = {}, 0
        for sequence in plan.sequences:
            request_id = sequence.request.request_id
            tokens = sampled.get(request_id, ()) if sequence.samples else ()
            if tokens:
                self._places[request_id] = (len(chosen), len(sequence.known_token_ids) + len(tokens))
                chosen.append(begin + len(tokens) - 1)
            begin += sequence.sampled_rows
        self._rows = self._memory.numbers(self._value, sizes)[chosen] if chosen else None

    def of(self, request_id: str, length: int) -> F32Array | None:
        """Returns the hidden state (D,) from which the last token of a request was sampled. length: the number of known
        tokens, prompt included. Returns None where the last step did not sample the last of these tokens."""
        place = self._places.get(request_id)
        if place is None or self._rows is None or place[1] != length:
            return None
        row: F32Array = self._rows[place[0]]
        return row
