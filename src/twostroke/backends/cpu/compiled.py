"""Compiles a program to native calls, which are encoded once, when the engine is built. Each step fills in three sizes:
its tokens, its sequences and its rows of logits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from twostroke.backends.cpu.recorded import Calls, Words
from twostroke.backends.cpu.words import ROWS_WORD, WORDS, Structs, call_words
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.program.op import Op, OperandKind, signature
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Indices, Size, Value
from twostroke.ops.step_memory import StepMemory, StepSizes


class Runner(Protocol):
    """The backend that runs encoded native calls: the ops of the CPU, or of a CUDA device."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each op in the backend's native library, by the op's name."""

    @property
    def structs(self) -> Structs:
        """The C structs of the weights and KV layers, to whose addresses encoded calls point."""

    def run(self, calls: Calls) -> None:
        """Runs calls on the present content of their operands."""


class CompiledProgram:
    """A program whose native calls are encoded for the arrays of one StepMemory. Satisfies `runner.forward.Forward`."""

    def __init__(self, runner: Runner, program: Program, memory: StepMemory) -> None:
        self._runner, self._memory = runner, memory
        self._logits = program.logits
        self._found_for = StepSizes(0, 0, 0)
        self._found = memory.value(program.logits, self._found_for)
        self._body, self._head = (_Half(runner, calls, memory) for calls in (program.body, program.head))

    def __call__(self, sizes: StepSizes) -> F32Array:
        self._body.run(self._runner, sizes)
        return self._logits_of(sizes)

    @property
    def max_rows(self) -> int:
        return self._memory.sizes.max_logit_rows

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        self._memory.choose_logit_rows(rows)
        return self._logits_of(StepSizes(sizes.tokens, sizes.sequences, len(rows)))

    def _logits_of(self, sizes: StepSizes) -> F32Array:
        if sizes.logit_rows:
            self._head.run(self._runner, sizes)
        if sizes != self._found_for:  # most steps of one text have the same sizes
            self._found, self._found_for = self._memory.value(self._logits, sizes), sizes
        return self._found


class _Half:
    """One half of a compiled program: the calls of its body, or of its head, encoded as 64-bit words."""

    def __init__(self, runner: Runner, calls: Iterable[Op], memory: StepMemory) -> None:
        names: list[str] = []
        words: list[int] = []
        places: dict[Size, list[int]] = {size: [] for size in Size}
        rows: list[tuple[int, int]] = []
        for call in calls:
            names.append(call.NAME)
            words.append(runner.numbers[call.NAME])
            at = len(words)
            words += call_words(type(call), memory.operands(call), runner.structs)
            for operand, item in zip(signature(type(call)), call.operands(), strict=True):
                if operand.kind in ROWS_WORD and item is not None:
                    places[_size(operand.kind, item)].append(at + ROWS_WORD[operand.kind])
                    if _size(operand.kind, item) is Size.TOKENS:
                        rows.append((at, 4 * words[at + 1] if isinstance(item, Value) else 4))
                at += WORDS[operand.kind]
        self._calls = Calls(tuple(names), words, memory)
        self._places: tuple[Words, ...] = tuple(np.array(places[size], np.int64) for size in Size)
        self._rows_at, self._row_bytes = (np.array([each[part] for each in rows], np.int64) for part in range(2))
        self._first = 0

    def run(self, runner: Runner, sizes: StepSizes) -> None:
        """Writes the step's sizes into the encoded calls, and runs them."""
        words = self._calls.words
        tokens, sequences, logit_rows = self._places
        words[tokens] = sizes.tokens
        words[sequences] = sizes.sequences
        words[logit_rows] = sizes.logit_rows
        if sizes.first != self._first:
            words[self._rows_at] += (sizes.first - self._first) * self._row_bytes
            self._first = sizes.first
        runner.run(self._calls)


def _size(kind: OperandKind, item: object) -> Size:
    if isinstance(item, Value):
        return item.rows
    return item.count if isinstance(item, Indices) else Size.SEQUENCES
