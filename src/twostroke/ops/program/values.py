"""The things that calls read and write: values, weights, vectors, rope tables, caches, inputs.

A value is the float32 result of one call: a row for each token of the step (or for each row that needs logits), each
row of a fixed shape. It may be a view: some columns of another value's rows, or that value after an op changed it in
place.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from twostroke.types.spec.formats import KVKind, WeightFormat
from twostroke.types.spec.rope import RopeSpec


class Size(enum.Enum):
    """The numbers that differ from step to step: rows (tokens), sequences, and rows of logits. All other sizes are
    fixed."""

    TOKENS = "T"
    SEQUENCES = "S"
    LOGIT_ROWS = "R"


class Recorder(Protocol):
    """The part of a Tracer that values and ops use: ops record themselves with it, and get new values and states from
    it."""

    def record(self, call: Any) -> Any:
        """Keeps one call, an `Op`."""

    def rows(self, count: Size, *shape: int) -> Value:
        """Makes a new value for the result of an op."""

    def state(self, elements: int) -> StateCache:
        """Makes a state of `elements` numbers for each sequence."""


class Value(Struct, frozen=True, eq=False):
    """The float32 result of an op, or a view of such a result. rows: which number of rows it has (TOKENS or
    LOGIT_ROWS). shape: the shape of one row, (columns,) or (heads, head_dim).

    base: the value whose memory this one lies in, from element `first` of each row on; None for memory of its own.
    changed: whether an op wrote this value over its base; the base must not be read afterwards. parts: the neighbours
    that were joined to this view.
    """

    trace: Recorder
    rows: Size
    shape: tuple[int, ...]
    base: Value | None = None
    first: int = 0
    changed: bool = False
    parts: tuple[Value, ...] = ()

    @property
    def width(self) -> int:
        """The number of elements of one row."""
        return math.prod(self.shape)

    @property
    def root(self) -> Value:
        """The value that owns the memory of this view; a value without a base is its own root. The chain of views may
        be long, because each layer changes the residual in place twice."""
        found = self
        while found.base is not None:
            found = found.base
        return found

    @property
    def offset(self) -> int:
        """The number of elements before this value's first one in a row of `root`, the value that owns the memory."""
        found, elements = self, self.first
        while found.base is not None:
            found = found.base
            elements += found.first
        return elements

    def fresh(self, *shape: int) -> Value:
        """Makes a new value with the same number of rows, and with the given shape or the same shape."""
        return Value(self.trace, self.rows, shape or self.shape)

    def written(self) -> Value:
        """Returns this value after an op has changed it in place."""
        return Value(self.trace, self.rows, self.shape, self, 0, True)

    def columns(self, first: int, count: int) -> Value:
        """Returns elements [first, first + count) of each row, as a view. Raises ValueError for elements outside the
        row."""
        if first < 0 or count < 1 or first + count > self.width:
            raise ValueError(f"columns [{first}, {first + count}) are not all in rows of {self.width} elements")
        return Value(self.trace, self.rows, (count,), self, first)

    def split(self, *widths: int) -> tuple[Value, ...]:
        """Returns views of these widths, one after the other. Together they have all columns. Raises ValueError for
        other sums of widths."""
        if sum(widths) != self.width:
            raise ValueError(f"parts of {widths} elements do not make rows of {self.width}")
        firsts = [sum(widths[:index]) for index in range(len(widths))]
        return tuple(self.columns(first, width) for first, width in zip(firsts, widths, strict=True))

    def heads(self, count: int) -> Value:
        """Returns this value's elements shaped as (count, width / count). Raises ValueError where `count` does not
        divide the width."""
        if count < 1 or self.width % count:
            raise ValueError(f"rows of {self.width} elements are not {count} heads")
        return Value(self.trace, self.rows, (count, self.width // count), self)

    def flat(self) -> Value:
        """Returns this value's elements shaped as (width,)."""
        return self if len(self.shape) == 1 else Value(self.trace, self.rows, (self.width,), self)


def join(*neighbours: Value) -> Value:
    """Returns one view that covers several neighbouring views of a value, such as the heads of q and of k. The views
    must follow each other in the rows of that value; ValueError is raised for others."""
    first = neighbours[0]
    end = first.offset
    for value in neighbours:
        if value.root is not first.root or value.offset != end or value.shape[1:] != first.shape[1:]:
            raise ValueError("only neighbours in the rows of one value can be joined")
        end += value.width
    shape = (sum(value.shape[0] for value in neighbours), *first.shape[1:])
    return Value(first.trace, first.rows, shape, first.root, first.offset, False, neighbours)


class HeadRows(Struct, frozen=True):
    """Some rows of a tensor in a given order: for each of `heads` heads, `count` rows from first + head * step on.

    pairs: how many rotary pairs of a head are stored as neighbours in the tensor, in rows 2i and 2i + 1. They are read
    as rows i and i + pairs, which are the pairs of ops/attention/rope.py. The products of queries and keys stay the
    same.
    """

    heads: int
    step: int
    count: int
    first: int = 0
    pairs: int = 0

    @property
    def index(self) -> tuple[int, ...]:
        """The indices of all rows of the tensor that are read, in the order of reading."""
        turned = 2 * self.pairs
        order = (*range(0, turned, 2), *range(1, turned, 2), *range(turned, self.count))
        return tuple(self.first + head * self.step + row for head in range(self.heads) for row in order)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a checkpoint, or a part of it, that becomes rows of a matrix or elements of a vector.

    shape: the shape of the whole tensor. matrix: the index of the matrix or vector that is read from a stack (M, rows,
    columns) or (M, length); all fields below describe that one. transposed: whether the tensor is stored as (columns,
    rows). In a vector it means that a tensor of several axes is read with its first axis changing fastest. order: which
    rows are read, in which order; None for all as stored. rows: (first, end): of these rows, only those from first to
    end - 1 are read; None for all. columns: (first, end): of a transposed tensor, only the columns of the matrix from
    first to end - 1 are read; None for all.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    rows: tuple[int, int] | None = None
    order: HeadRows | None = None
    matrix: int | None = None
    columns: tuple[int, int] | None = None

    @property
    def length(self) -> int:
        """The number of rows that this tensor contributes to a matrix, or of elements to a vector."""
        if self.rows is not None:
            return self.rows[1] - self.rows[0]
        if self.order is not None:
            return self.order.heads * self.order.count
        shape = self.shape if self.matrix is None else self.shape[1:]
        return shape[1] if self.transposed else shape[0]


@dataclass(frozen=True, eq=False, slots=True)
class Weight:
    """A packed matrix W of (rows, columns) for x @ W.T + bias: rows of several tensors, one after the other.

    key: the weight's name in the project's files. role: the use of the matrix, by which its format is chosen. experts:
    how many such matrices lie in one bank, one after the other. `parts` then holds the parts of all matrices in order,
    and `rows` is the number of rows of one matrix.

    stored: the format that keeps the checkpoint's numbers unchanged; None for floats. order: for each column of W, the
    index of the tensors' column that it is, where the order differs; the inputs are taken in the same order. lost_by:
    where it is set, W is the rounding error that the tensors have in this format.
    """

    key: str
    role: str
    rows: int
    columns: int
    parts: tuple[Tensor, ...]
    bias: tuple[Tensor, ...] = ()
    experts: int = 0
    stored: WeightFormat | None = None
    order: Vector | None = None
    lost_by: WeightFormat | None = None

    @property
    def matrices(self) -> int:
        """The number of matrices: those of the bank, or one."""
        return max(1, self.experts)

    @property
    def all_rows(self) -> int:
        """The number of rows of the whole bank, or of the one matrix."""
        return self.rows * self.matrices

    @property
    def elements(self) -> int:
        """The number of numbers in all matrices, without the bias."""
        return self.all_rows * self.columns


class VectorForm(enum.Enum):
    """How the numbers of a vector are made from its tensors when it is loaded.

    STORED: the tensors' numbers as they are. NEGATED_EXP: the numbers are logarithms x, read as -exp(x) (Mamba's A).
    REST: the numbers x are read as 1 - x (RWKV-4's mixing ratios). DIFFERENCE: four tensors a, b, c, d of equal length
    make the one number exp(c . d) - exp(a . b): the negated factor of the second softmax in differential attention (Ye
    et al. 2024). PRODUCT: a table (B, K), a matrix (N, K) and its bias (N,) make the numbers (N, B) of matrix @ table.T
    + bias. Where there are five tensors, the second and third are the weight and bias of a layer norm that the table's
    rows get first, and `numbers` holds its epsilon. INVERSE_LENGTHS: a matrix (N, K) makes one over the length of each
    row. SHARED_BIAS: a bias of rotated heads makes the mean of the rotated bias over many positions. `numbers` has the
    size of a head, then the mean cosine of each rotary pair and the mean sine of each pair. Elements that are not
    rotated stay as they are.
    """

    STORED = enum.auto()
    NEGATED_EXP = enum.auto()
    REST = enum.auto()
    DIFFERENCE = enum.auto()
    PRODUCT = enum.auto()
    INVERSE_LENGTHS = enum.auto()
    SHARED_BIAS = enum.auto()

    @property
    def is_made(self) -> bool:
        """Whether the vector's numbers are computed from whole matrices, tables or biases at load, which other parts of
        a program may read too."""
        return self in (VectorForm.PRODUCT, VectorForm.INVERSE_LENGTHS, VectorForm.SHARED_BIAS)


@dataclass(frozen=True, eq=False, slots=True)
class Vector:
    """A vector of `length` float32 numbers, such as the weight of a norm. parts: the checkpoint's tensors that it is
    made from. form: how it is made from them. plus: a number that is added to each element at load (Gemma's norms store
    w - 1). numbers: with no parts, the vector's own numbers, which follow from the config; with parts, further numbers
    that some forms need, such as an epsilon."""

    key: str
    length: int
    parts: tuple[Tensor, ...]
    plus: float = 0.0
    form: VectorForm = VectorForm.STORED
    numbers: tuple[float, ...] = ()

    @property
    def parameters(self) -> int:
        """How many numbers of the checkpoint this vector is made from."""
        return sum(part.length for part in self.parts) if self.form is VectorForm.DIFFERENCE else self.length


class RowTurns(Struct, frozen=True):
    """How M-RoPE rotates the pairs of a head by several positions of a row, for example time, height and width. axes:
    for each pair, which of the row's positions rotates it. pairs: for each pair, the pair of an ordinary rope table
    whose frequency it has."""

    axes: tuple[int, ...]
    pairs: tuple[int, ...]


class Rope(Struct, frozen=True):
    """A table of cos and sin for rotations. Equal tables are stored once.

    rates: the logarithm of the factor of each pair's frequency, (rotary_dim / 2,), where the factors are learned.
    turns: for M-RoPE, the position that rotates each pair. The table then has a row for each row of the step, in the
    order of ROW_NUMBERS, and is written before each step.
    """

    spec: RopeSpec
    rates: Vector | None = None
    turns: RowTurns | None = None


ALL_AHEAD = 1 << 30
"""The value of PagedKV.ahead with which a query sees every position of its sequence that follows it."""


@dataclass(frozen=True, slots=True)
class PagedKV:
    """K and V of every position, in pages. window: how many positions a query sees, its own included; 0 means all.

    v_dim: the head size of V where it is not that of K, head_dim; 0 where it is. chunked: whether a query sees
    positions only from the last multiple of `window` on, so at most `window` of them. ahead: how many positions after
    its own a query sees as well; 0 for causal attention.
    """

    kv_heads: int
    head_dim: int
    window: int = 0
    v_dim: int = 0
    chunked: bool = False
    ahead: int = 0

    @property
    def value_dim(self) -> int:
        """The number of elements of one head of V."""
        return self.v_dim or self.head_dim

    def token_bytes(self, kv_kind: KVKind) -> int:
        """Returns the bytes of one position."""
        return self.kv_heads * kv_kind.token_bytes(self.head_dim, self.value_dim)


@dataclass(frozen=True, slots=True)
class LatentKV(PagedKV):
    """One latent vector of every position, in pages, followed by the rotated part of its key (DeepSeek-AI 2024).

    All query heads read the same vector. The whole vector, head_dim elements, is the key, and its first v_dim elements,
    the latent, are the value. kv_heads is 1.
    """

    def token_bytes(self, kv_kind: KVKind) -> int:
        """Returns the bytes of one position: those of one vector, because V is a part of K and is not stored again."""
        return kv_kind.latent_bytes(self.head_dim)


class StateSlots(Struct, frozen=True):
    """The kind of a cache that keeps `elements` float32 numbers for each sequence: a state of fixed size, as of a
    recurrent layer."""

    elements: int


CacheKind = PagedKV | StateSlots


@dataclass(frozen=True, eq=False, slots=True)
class Cache:
    """The memory that one layer keeps between steps. index: its place among the program's caches."""

    index: int
    kind: CacheKind


@dataclass(frozen=True, eq=False, slots=True)
class StateCache(Cache):
    """A cache of the kind StateSlots, which ops read and change in place."""

    kind: StateSlots

    @property
    def elements(self) -> int:
        """The number of float32 numbers of one sequence."""
        return self.kind.elements


class Indices(Struct, frozen=True):
    """An int32 input of the step: `token_ids`, `token_types`, `positions`, `slots`, `adapters`, `row_marks`,
    `row_numbers`, `row_ends` (T,), `state_slots` (S,), `logit_rows`, `logit_adapters` (R,)."""

    name: str
    count: Size


class Sequences(Struct, frozen=True):
    """The input that tells which rows belong to which sequence, and where the sequence's pages are."""


TOKEN_IDS = Indices("token_ids", Size.TOKENS)
TOKEN_TYPES = Indices("token_types", Size.TOKENS)
POSITIONS = Indices("positions", Size.TOKENS)
SLOTS = Indices("slots", Size.TOKENS)
ROW_MARKS = Indices("row_marks", Size.TOKENS)
ROW_NUMBERS = Indices("row_numbers", Size.TOKENS)
ROW_ENDS = Indices("row_ends", Size.TOKENS)
STATE_SLOTS = Indices("state_slots", Size.SEQUENCES)
LOGIT_ROWS = Indices("logit_rows", Size.LOGIT_ROWS)
ADAPTERS = Indices("adapters", Size.TOKENS)
LOGIT_ADAPTERS = Indices("logit_adapters", Size.LOGIT_ROWS)
SEQUENCES = Sequences()
