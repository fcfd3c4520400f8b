"""Small programs for tests of the passes, made at random or call by call, and a memory in which they run."""

from __future__ import annotations

from random import Random

import numpy as np

from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Size, Value, Weight, join
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gate import gate
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.head_norm import head_norm
from twostroke.ops.rows.rms_norm import rms_norm
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.types.spec.formats import F32, KVKind

VOCABULARY, EPS = 11, 1e-5
WIDTHS, INNER = (8, 136), 136
"""Widths of more than one panel of 64, so that kernels divide a product among tasks."""
SIZES = MemorySizes(num_pages=1, context_tokens=16, max_step_tokens=4, max_sequences=2)


def rows_of(trace: Tracer, width: int, size: Size = Size.TOKENS) -> Value:
    """A value that no call has written."""
    return trace.rows(size, width)


class RandomProgram:
    """Traces `num_calls` steps over a few values of two widths, then logits.

    The program does only what a model may do: a value that was changed in place is not read again.
    """

    def __init__(self, random: Random, num_calls: int) -> None:
        self._random, self._trace, self._names = random, Tracer(), 0
        self.values = [self._embedded()]
        for _ in range(num_calls):
            random.choice((self._product, self._product, self._sum, self._norm, self._gate, self._half, self._embed))()
        x = random.choice(self.values)
        chosen = gather_rows(x, self._trace.logit_rows)
        normed = rms_norm(chosen, self._trace.vector(self._name(), x.width), EPS, in_place=random.random() < 0.5)
        self.program: Program = self._trace.program(linear(normed, self._matrix(VOCABULARY, x.width)))

    def _name(self) -> str:
        self._names += 1
        return f"tensor{self._names}"

    def _matrix(self, rows: int, columns: int) -> Weight:
        return self._trace.matrix("any", {self._name(): rows}, columns)

    def _take(self) -> Value:
        """One of the values, which is not read again."""
        return self.values.pop(self._random.randrange(len(self.values)))

    def _embedded(self) -> Value:
        width = self._random.choice(WIDTHS)
        return embed(self._matrix(VOCABULARY, width), self._trace.token_ids, self._trace)

    def _embed(self) -> None:
        self.values.append(self._embedded())

    def _product(self) -> None:
        x = self._random.choice(self.values)
        self.values.append(linear(x, self._matrix(self._random.choice((*WIDTHS, 2 * INNER)), x.width)))

    def _sum(self) -> None:
        """residual + x, or the product that fuse looks for: residual + linear(x)."""
        residual = self._take()
        same = [value for value in self.values if value.width == residual.width]
        if same and self._random.random() < 0.5:
            self.values.append(add(residual, self._random.choice(same)))
        else:
            x = self._random.choice([*self.values, residual])
            self.values.append(add(residual, linear(x, self._matrix(residual.width, x.width))))

    def _norm(self) -> None:
        in_place = self._random.random() < 0.5
        x = self._take() if in_place else self._random.choice(self.values)
        self.values.append(rms_norm(x, self._trace.vector(self._name(), x.width), EPS, in_place=in_place))

    def _gate(self) -> None:
        """A whole gated block, or its first half alone. It may be added to the value that it reads."""
        x = self._random.choice(self.values)
        gated = gate(
            linear(x, self._matrix(2 * INNER, x.width)), self._random.choice((Activation.SILU, Activation.RELU))
        )
        if self._random.random() < 0.5:
            self.values.append(gated)
        else:
            residual = self._take()
            self.values.append(add(residual, linear(gated, self._matrix(residual.width, INNER))))

    def _half(self) -> None:
        """The norm of half of each row, joined with the other half, as attention does with q and k."""
        x = self._take()
        first, second = x.split(x.width // 2, x.width // 2)
        changed = head_norm(first.heads(2), self._trace.vector(self._name(), x.width // 4), EPS)
        self.values.append(join(changed, second.heads(2)).flat())


def memory_of(program: Program, seed: int = 0) -> StepMemory:
    """A memory with the same random weights for every form of a program, and inputs of 3 tokens and 2 logit rows."""

    def numbers(key: str, *shape: int) -> np.ndarray:
        return np.random.default_rng([seed, *key.encode()]).normal(0, 0.5, shape).astype(np.float32)

    matrices = {w.key: pack_weight(numbers(w.key, w.rows, w.columns), F32) for w in program.weights}
    vectors = {v.key: numbers(v.key, v.length) for v in program.vectors}
    memory = StepMemory(program, matrices, vectors, KVKind.F32, SIZES)
    memory.token_ids[:3] = [3, 1, 7]
    memory.logit_rows[:] = [2, 0]
    return memory


STEP = StepSizes(tokens=3, sequences=1, logit_rows=2)
