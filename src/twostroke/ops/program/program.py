"""Program: the calls of a model in order, and the weights, caches and values that these calls read and write."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.ops.program.op import Op
from twostroke.ops.program.values import Cache, PagedKV, Rope, Size, StateCache, Tensor, Value, Vector, Weight


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """The calls of a model in order. body: the calls for all rows of a step. head: the calls for the rows that need
    logits. logits: the result.

    The head may run again for other rows of the same step: the values of the body that it reads stay valid until the
    next step.

    given: inputs that no call makes; they are filled before each step. kept: values that may be read after the step,
    next to the logits, until the head or the program runs again.

    cuts: places in the body at which all rows wait for each other. Between two of them the rows may be computed block
    by block, so a value that lives across a cut keeps all of its rows.
    """

    body: tuple[Op, ...]
    head: tuple[Op, ...]
    logits: Value
    weights: tuple[Weight, ...]
    vectors: tuple[Vector, ...]
    caches: tuple[Cache, ...]
    ropes: tuple[Rope, ...]
    given: tuple[Value, ...] = ()
    kept: tuple[Value, ...] = ()
    cuts: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        calls: tuple[Op, ...],
        logits: Value,
        given: tuple[Value, ...] = (),
        kept: tuple[Value, ...] = (),
    ) -> Program:
        """Makes a program of calls, and finds its weights, vectors, caches and rope tables in their operands. The calls
        for all rows are the body, and the calls for the rows that need logits are the head. Raises ValueError where a
        call of the body comes after one of the head."""
        is_head = [call.result is not None and call.result.rows is Size.LOGIT_ROWS for call in calls]
        first = is_head.index(True) if True in is_head else len(calls)
        if not all(is_head[first:]):
            raise ValueError("a call of all rows follows one of the rows that need logits")
        operands = [item for call in calls for item in call.operands()]
        weights, vectors, caches, ropes = (
            tuple(dict.fromkeys(item for item in operands if isinstance(item, kind)))
            for kind in (Weight, Vector, Cache, Rope)
        )
        rates = (rope.rates for rope in ropes if isinstance(rope, Rope) and rope.rates is not None)
        vectors = tuple(dict.fromkeys((*vectors, *rates)))
        return cls(calls[:first], calls[first:], logits, weights, vectors, caches, ropes, given, kept)  # type: ignore[arg-type]

    @property
    def calls(self) -> tuple[Op, ...]:
        """The calls of body and head, in order."""
        return self.body + self.head

    @property
    def parameters(self) -> int:
        """The number of trained numbers. A matrix that is used twice is counted once."""
        matrices = sum(map(_numbers, self.weights))
        stored = [vector for vector in self.vectors if vector.parts and not vector.form.is_made]
        return matrices + sum(vector.parameters for vector in stored) + self._numbers_of_made()

    def _numbers_of_made(self) -> int:
        """Returns how many elements the checkpoint's tensors have that are not read as they are: vectors are computed
        from them at load (VectorForm.is_made). A tensor that several vectors read counts once, and one that is also
        part of a matrix does not count."""
        made = {
            part.name: math.prod(part.shape) for vector in self.vectors if vector.form.is_made for part in vector.parts
        }
        counted = {part.name for weight in self.weights for part in (*weight.parts, *weight.bias)}
        return sum(count for name, count in made.items() if name not in counted)

    @property
    def active_parameters(self) -> int:
        """The number of parameters that one token uses. In a bank of experts only the chosen ones count."""
        chosen = {id(weight): share for weight, share in self._shares()}
        return self.parameters - sum(
            round(_numbers(weight) * (1 - chosen[id(weight)])) for weight in self.weights if id(weight) in chosen
        )

    def paged(self) -> Iterator[PagedKV]:
        """Yields the kinds of the caches that grow with the sequence, one for each layer that has such a cache."""
        for cache in self.caches:
            if isinstance(cache.kind, PagedKV):
                yield cache.kind

    def states(self) -> Iterator[StateCache]:
        """Yields the states that each sequence keeps."""
        return (cache for cache in self.caches if isinstance(cache, StateCache))

    def _shares(self) -> Iterator[tuple[Weight, float]]:
        for call in self.calls:
            for item in call.operands():
                if isinstance(item, Weight) and item.experts:
                    yield item, call.experts_of_a_row / item.experts


def _numbers(weight: Weight) -> int:
    """Returns how many numbers a matrix or a bank has, with its biases. A bias that several matrices or rows share
    counts once."""
    return weight.elements + sum(_distinct(part) for part in dict.fromkeys(weight.bias))


def _distinct(part: Tensor) -> int:
    """Returns how many distinct numbers a bias has. If all heads read the same rows of the tensor (part.order.step is
    0), these count once."""
    return part.order.count if part.order is not None and part.order.step == 0 else part.length
