"""Tracer: runs a model file once over symbols and keeps the calls that it made.

    trace = Tracer()
    with trace.layer("model.layers.0."):
        h = rms_norm(x, trace.vector("input_layernorm", 64), 1e-5)
        y = linear(h, trace.matrix("o", {"self_attn.o_proj": 64}, 64))
    program = trace.program(logits)

A weight is named where it is used. Asking twice for the same tensors returns the same object, so a tied head is the
embedding's weight.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from twostroke.ops.program.op import Op, OperandKind, mismatch, signature
from twostroke.ops.program.program import Program
from twostroke.ops.program.stack import ExpertStack
from twostroke.ops.program.values import (
    LOGIT_ROWS,
    POSITIONS,
    SEQUENCES,
    SLOTS,
    STATE_SLOTS,
    TOKEN_IDS,
    TOKEN_TYPES,
    Cache,
    CacheKind,
    HeadRows,
    Indices,
    Size,
    StateCache,
    StateSlots,
    Tensor,
    Value,
    Vector,
    VectorForm,
    Weight,
)
from twostroke.types.spec.formats import WeightFormat

StoredChoice = Callable[[tuple[Tensor, ...]], WeightFormat | None]


def nothing_stored(parts: tuple[Tensor, ...]) -> WeightFormat | None:
    """Returns None for every matrix: the choice where nothing is known of the checkpoint."""
    return None


NO_ORDERS: Mapping[str, HeadRows] = {}


class Tracer:
    """Collects the calls of a model while its model file runs. Inputs of the step are attributes; methods make
    matrices, vectors and caches; ops record themselves."""

    token_ids, positions, slots, state_slots, logit_rows = TOKEN_IDS, POSITIONS, SLOTS, STATE_SLOTS, LOGIT_ROWS
    token_types, sequences = TOKEN_TYPES, SEQUENCES

    def __init__(self, stored: StoredChoice = nothing_stored, apart: bool = False) -> None:
        """stored: returns, for the tensors of a matrix, the format in which a checkpoint's codes and scales stay
        unchanged; None for floats. apart: whether experts that plain checkpoints hold in stacks are read as one tensor
        each."""
        self._stored = stored
        self.apart = apart
        self.stacks: list[ExpertStack] = []
        """Tensors (experts, rows, columns) of checkpoints that are not quantized. The program reads each expert as a
        tensor of its own. They become `Model.stacks`."""
        self._calls: list[Op] = []
        self._weights: dict[tuple[Tensor, ...], Weight] = {}
        self._keys: set[str] = set()
        self._vectors: dict[tuple[object, ...], Vector] = {}
        self._caches: list[Cache] = []
        self._given: list[Value] = []
        self._prefix = ""

    @contextlib.contextmanager
    def layer(self, prefix: str) -> Iterator[None]:
        """Puts `prefix` before the names of the tensors that are asked for inside. Layers may be nested."""
        outer, self._prefix = self._prefix, self._prefix + prefix
        try:
            yield
        finally:
            self._prefix = outer

    def rows(self, count: Size, *shape: int) -> Value:
        """Makes a new value for the result of an op."""
        return Value(self, count, shape)

    def given(self, *shape: int) -> Value:
        """Makes an input of the program, a value with a row for each token of the step, such as the rows of an image.
        The code that runs the program fills it before the step."""
        value = self.rows(Size.TOKENS, *shape)
        self._given.append(value)
        return value

    def matrix(
        self,
        role: str,
        outputs: Mapping[str, int],
        columns: int,
        *,
        bias: bool = False,
        transposed: bool = False,
        orders: Mapping[str, HeadRows] = NO_ORDERS,
    ) -> Weight:
        """Returns the matrix that has the rows of these tensors, in order. outputs: for each tensor's name, without
        ".weight", its number of rows.

        transposed: whether the tensors are stored as (columns, rows). orders: for each tensor whose rows are read in
        another order, this order.
        """
        parts = tuple(
            Tensor(
                f"{self._prefix}{name}.weight",
                (columns, rows) if transposed else (rows, columns),
                transposed,
                order=orders.get(name),
            )
            for name, rows in outputs.items()
        )
        biases = tuple(
            Tensor(f"{self._prefix}{name}.bias", (rows,), order=orders.get(name)) for name, rows in outputs.items()
        )
        return self.weight(role, sum(outputs.values()), columns, parts, biases if bias else ())

    def selected(
        self,
        role: str,
        name: str,
        stored_rows: int,
        columns: int,
        orders: Sequence[HeadRows | None],
        *,
        bias: bool = False,
    ) -> Weight:
        """Returns a matrix made of rows of the tensor `name`, whose shape is (stored_rows, columns). Each item of
        `orders` tells which rows come next and in which order; None stands for all rows as stored. bias: whether a bias
        is read in the same order."""
        shape, full = (stored_rows, columns), f"{self._prefix}{name}"
        parts = tuple(Tensor(f"{full}.weight", shape, order=order) for order in orders)
        biases = tuple(Tensor(f"{full}.bias", shape[:1], order=order) for order in orders)
        return self.weight(role, sum(part.length for part in parts), columns, parts, biases if bias else ())

    def weight(
        self,
        role: str,
        rows: int,
        columns: int,
        parts: tuple[Tensor, ...],
        bias: tuple[Tensor, ...] = (),
        experts: int = 0,
    ) -> Weight:
        """Returns a matrix, or a bank of `experts` matrices, that has the rows of all `parts`, one after the other.
        parts, bias: tensors with full names (`name` makes them). role: the use of the matrix, by which its format is
        chosen."""
        found = self._weights.get(parts)
        if found is None:
            key = f"{parts[0].name.removesuffix('.weight')}:{role}"
            if key in self._keys:  # another part of the same tensor has this key
                key = f"{key}{len(self._weights)}"
            self._keys.add(key)
            found = self._weights[parts] = Weight(key, role, rows, columns, parts, bias, experts, self._stored(parts))
        return found

    def name(self, name: str) -> str:
        """Returns the full name of a tensor in this layer."""
        return self._prefix + name

    def vector(
        self, name: str, length: int, *, plus: float = 0.0, suffix: str = ".weight", order: HeadRows | None = None
    ) -> Vector:
        """Returns a float32 vector. plus: a number that is added to each number when the vector is loaded. order: the
        order of rows, see `matrix`."""
        return self.vector_of((Tensor(f"{self._prefix}{name}{suffix}", (length,), order=order),), length, plus=plus)

    def constant(self, name: str, numbers: tuple[float, ...]) -> Vector:
        """Returns a float32 vector whose numbers follow from the config instead of a tensor. The same numbers give the
        same vector. name: the beginning of the vector's key."""
        key = ((), *numbers)
        if key not in self._vectors:
            self._vectors[key] = Vector(f"{name}:constant{len(self._vectors)}", len(numbers), (), numbers=numbers)
        return self._vectors[key]

    def vector_of(
        self,
        parts: tuple[Tensor, ...],
        length: int,
        *,
        plus: float = 0.0,
        form: VectorForm = VectorForm.STORED,
        numbers: tuple[float, ...] = (),
    ) -> Vector:
        """Returns a vector of tensors with full names. The tensors are flattened, one after the other, or combined by
        `form`. numbers: the further numbers that the form needs."""
        key = (parts, plus, form, numbers)
        found = self._vectors.get(key)
        if found is None:
            name = parts[0].name.removesuffix(".weight")
            found = self._vectors[key] = Vector(
                f"{name}:vector{len(self._vectors)}", length, parts, plus, form, numbers
            )
        return found

    def cache(self, kind: CacheKind) -> Cache:
        """Makes a cache that one layer keeps between steps."""
        cache = Cache(len(self._caches), kind)
        self._caches.append(cache)
        return cache

    def state(self, elements: int) -> StateCache:
        """Makes a state of `elements` numbers, which one layer keeps for each sequence. The numbers of a new sequence
        are zeros."""
        state = StateCache(len(self._caches), StateSlots(elements))
        self._caches.append(state)
        return state

    def record(self, call: Op) -> Op:
        """Keeps one call. Raises ValueError where shapes do not fit the op's."""
        wrong = mismatch(type(call), _shapes(call))
        if wrong is not None:
            raise ValueError(f"{call.NAME}: {wrong[0]} must be {wrong[1]}, it is {_shapes(call)[wrong[0]]}")
        self._calls.append(call)
        return call

    def program(self, logits: Value, kept: tuple[Value, ...] = ()) -> Program:
        """Returns the program. Raises ValueError where a weight, a vector or a cache was asked for and never used."""
        program = Program.of(tuple(self._calls), logits, tuple(self._given), kept)
        used = {id(item) for item in (*program.weights, *program.vectors, *program.caches)}
        for item in (*self._weights.values(), *self._vectors.values(), *self._caches):
            if id(item) not in used:
                raise ValueError(f"{item} is never used")
        return program


def _shapes(call: Op) -> dict[str, tuple[object, ...]]:
    """Returns the shape of each operand that has one, by the operand's name."""
    found: dict[str, tuple[object, ...]] = {}
    for operand in signature(type(call)):
        item = getattr(call, operand.name)
        if isinstance(item, Value):
            found[operand.name] = (item.rows, *item.shape)
        elif isinstance(item, Weight):
            found[operand.name] = (item.all_rows, item.columns)
        elif isinstance(item, Vector):
            found[operand.name] = (item.length,)
        elif isinstance(item, Indices):
            found[operand.name] = (item.count,)
        elif operand.kind is OperandKind.CACHE and operand.name in call.SHAPES:
            found[operand.name] = (item.kind.kv_heads, item.kind.head_dim, item.kind.value_dim)
    return found
