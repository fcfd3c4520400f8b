"""Op: one op of a program with its operands. Each op is a dataclass in `ops/`; its fields are its signature.

    @op
    class RmsNorm(Op):
        SHAPES = {"out": "T D", "x": "T D", "weight": "D"}

        out: Value
        x: Value
        weight: Vector
        eps: float

The order of the fields is the order of the reference's arguments, and of the members of the native struct. A reference
of more than seven operands takes them as one tuple, in that order. A shape names each axis. A name stands for one
number in the whole call, `2F` for twice that number, and `*` for any number.
`op` sets the class's NAME to the name of its module, and its `reference` to the module's function of that name.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

from msgspec import Struct

from twostroke.cost.work import Work
from twostroke.ops.program.cases import CaseGrid
from twostroke.ops.program.values import Cache, Indices, Rope, Sequences, StateCache, Value, Vector, Weight
from twostroke.types.spec.formats import KVKind, WeightFormat

Shapes = Mapping[str, str]
FormatChoice = Callable[[Weight], WeightFormat]
"""A function that returns the format in which a matrix is packed."""

CallArrays = tuple[Any, ...]
"""The operands of one call, in the order of its op's fields: arrays, packed weights and numbers."""

_AXIS = re.compile(r"(\d*)([A-Za-z_]*)")


class OperandKind(enum.Enum):
    """The kinds of operands. The values are the words in the C header."""

    VALUE = "value"
    WEIGHT = "weight"
    VECTOR = "vector"
    CACHE = "cache"
    STATE = "state"
    ROPE = "rope_table"
    INDICES = "indices"
    SEQUENCES = "sequences"
    NUMBER = "number"
    INTEGER = "integer"


class OpPart(enum.Enum):
    """The part of a step's predicted time under which a call is counted. ATTENTION: calls that read K, V and states."""

    PRODUCT = "product"
    ATTENTION = "attention"
    OTHER = "other"


class Operand(Struct, frozen=True):
    """The description of one field of an op: its name, the kind of operand that it holds, and whether it may be
    None."""

    name: str
    kind: OperandKind
    optional: bool


class StoredFormats(Struct, frozen=True):
    """The formats in which weights, and K and V, are stored. format_for: returns the format of each matrix."""

    format_for: FormatChoice
    kv: KVKind

    def weight_bytes(self, weight: Weight) -> int:
        """Returns the bytes of all matrices of a weight, packed."""
        return weight.matrices * self.format_for(weight).total_bytes(weight.rows, weight.columns)


class OpCost(Struct, frozen=True):
    """The cost of a call. once: the cost where there is any row at all. per_row: the cost of each row of its result.
    per_pair: the cost of each pair of a row and a position that the row sees, up to its own. per_later: the cost of
    each pair of a row and a later position of its span. per_position: the cost of each cached position that is read,
    once for all rows of its sequence. per_pair, per_later and per_position are for calls with a `window`. per_sequence:
    the cost of each sequence with any row."""

    once: Work = Work()
    per_row: Work = Work()
    per_pair: Work = Work()
    per_later: Work = Work()
    per_position: Work = Work()
    per_sequence: Work = Work()

    def __add__(self, other: OpCost) -> OpCost:
        return OpCost(
            self.once + other.once,
            self.per_row + other.per_row,
            self.per_pair + other.per_pair,
            self.per_later + other.per_later,
            self.per_position + other.per_position,
            self.per_sequence + other.per_sequence,
        )


class Op:
    """One op with its operands: one call of a program. `op` makes each subclass, in a module that also defines
    `reference`, a NumPy function. The arguments of `reference` are the fields in order; with more than seven fields it
    is one tuple of them."""

    __slots__ = ()
    NAME: ClassVar[str]
    SHAPES: ClassVar[Shapes]
    CASES: ClassVar[tuple[CaseGrid, ...]] = ()
    """The calls with which the op is tested, on every backend."""
    PART: ClassVar[OpPart] = OpPart.OTHER
    SCRATCH: ClassVar[tuple[str, ...]] = ()
    """The names of operands that are scratch memory. Their content is lost."""
    DIVIDED_WEIGHT: ClassVar[str] = ""
    """The name of the weight whose rows make the columns of the result, where each rank may have some of the rows."""
    OWN_ROWS: ClassVar[str] = ""
    """The name of a weight whose rows may be divided among ranks. A rank with some of the rows still makes a result of
    full width, and the results of all ranks are put side by side. The operand `first` is the rank's first row."""
    ROUNDED: ClassVar[str] = ""
    """The name of the operand that the op rounds to int8 (`quantize_rows`) where the matrix named by DIVIDED_WEIGHT is
    of an integer kind. Another value that rounds to the same codes and scales gives the same bits, so ranks may
    exchange codes. Only a text's first rows need their floats: their rounding errors are multiplied too."""
    BY_HEADS: ClassVar[bool] = False
    """Whether each head (or column) of the result depends on the same head (or column) of the other operands alone.
    Then each rank may have some of the heads."""
    COLUMN_VECTOR: ClassVar[str] = ""
    """The name of an operand that may have one number for each column of the result, such as a bias, so that ranks
    divide it as they divide the columns. "" for an op without such an operand."""
    ON_DEVICES: ClassVar[bool] = True
    """Whether CUDA devices have a kernel for the op. A program with any other op is refused on a device."""

    READ: ClassVar[Callable[[Any], tuple[Any, ...]]]
    """A function that `op` makes: READ(call) returns the operands of a call of this op, in the order of the fields."""

    reference: ClassVar[Callable[..., None]]

    def cost(self, formats: StoredFormats) -> OpCost:
        """Returns what this call costs, as a function of the size of a step."""
        raise NotImplementedError(f"{type(self).__name__} has no cost")

    @property
    def result(self) -> Value | None:
        """The value that this call makes or changes; None where the call only writes to a cache."""
        found: Value | None = getattr(self, "out", None)
        return found

    @property
    def experts_of_a_row(self) -> int:
        """How many matrices of the op's banks one row is multiplied by; 0 for ops without banks."""
        return 0

    @property
    def column_numbers(self) -> Vector | None:
        """The operand COLUMN_VECTOR, such as a bias or factors, where it has one number for each column of the result;
        else None. A rank that has some of the columns takes these columns' numbers."""
        vector: Vector | None = getattr(self, self.COLUMN_VECTOR) if self.COLUMN_VECTOR else None
        return vector if vector is not None and self.result and vector.length == self.result.width else None

    def operands(self) -> tuple[Any, ...]:
        """Returns the fields' contents, in order."""
        return type(self).READ(self)

    def reads(self) -> tuple[Value, ...]:
        """Returns the values that this call reads: all its values except a result that it only writes, and scratch
        memory."""
        scratch = [getattr(self, name) for name in self.SCRATCH]
        found = [item for item in self.operands() if isinstance(item, Value) and item not in scratch]
        return tuple(
            value.base if value is self.result and value.changed and value.base is not None else value
            for value in found
            if value is not self.result or value.changed
        )


Kind = TypeVar("Kind", bound=Op)


@dataclass_transform(frozen_default=True, eq_default=False)
def op(kind: type[Kind]) -> type[Kind]:
    """Returns the class as a frozen dataclass, with the name of its module and the `reference` that the module defines.
    """
    module = sys.modules[kind.__module__]
    made = dataclasses.dataclass(frozen=True, eq=False, slots=True)(kind)
    made.NAME = module.__name__.rpartition(".")[2]
    made.reference = staticmethod(_with_arguments(made, module.reference))
    made.READ = staticmethod(_reader(tuple(field.name for field in dataclasses.fields(made))))  # type: ignore[arg-type]
    return made


def _with_arguments(kind: type[Op], reference: Callable[..., None]) -> Callable[..., None]:
    """Returns a function that takes the operands as separate arguments, for a reference of one tuple. Operands at the
    end that have a default in the class `kind` may be missing."""
    if reference.__code__.co_argcount > 1:
        return reference
    return lambda *operands: reference(completed(kind, operands))


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that reads these fields of a call as a tuple. attrgetter reads several fields fast, but for
    one field it returns no tuple."""
    if len(names) < 2:
        return lambda call: tuple(getattr(call, name) for name in names)
    return operator.attrgetter(*names)


_KINDS = {
    Value: OperandKind.VALUE,
    Weight: OperandKind.WEIGHT,
    Vector: OperandKind.VECTOR,
    Cache: OperandKind.CACHE,
    StateCache: OperandKind.STATE,
    Rope: OperandKind.ROPE,
    Indices: OperandKind.INDICES,
    Sequences: OperandKind.SEQUENCES,
    float: OperandKind.NUMBER,
    int: OperandKind.INTEGER,
}


_signatures: dict[type[Op], tuple[Operand, ...]] = {}


def signature(op: type[Op]) -> tuple[Operand, ...]:
    """Returns the operands of an op, in order."""
    known = _signatures.get(op)
    if known is not None:
        return known
    hints = get_type_hints(op)
    found = []
    for field in dataclasses.fields(op):  # type: ignore[arg-type]
        hint = hints[field.name]
        choices = [choice for choice in getattr(hint, "__args__", (hint,)) if choice is not type(None)]
        found.append(Operand(field.name, _KINDS[choices[0]], len(choices) < len(getattr(hint, "__args__", (hint,)))))
    _signatures[op] = tuple(found)
    return _signatures[op]


def defaults(op: type[Op]) -> dict[str, Any]:
    """Returns the operands that may be left out, with their default values."""
    fields = dataclasses.fields(op)  # type: ignore[arg-type]
    return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}


def completed(op: type[Op], operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns all operands of an op. operands: the given ones; those at the end that have a default may be missing."""
    missing = len(signature(op)) - len(operands)
    return (*operands, *tuple(defaults(op).values())[-missing:]) if missing > 0 else operands


class Axis(Struct, frozen=True):
    """One axis of a shape. Its size is `times` the number that `name` stands for. With an empty name the size is
    `times` itself."""

    name: str
    times: int


@cache
def axes(shape: str) -> tuple[Axis, ...]:
    """Parses one text of an op's SHAPES, such as "T 2F": returns its axes. Raises ValueError for a text that is no
    shape."""
    found = []
    for word in shape.split():
        match = _AXIS.fullmatch(word)
        if word == "*":
            found.append(Axis("*", 1))
        elif match is None:
            raise ValueError(f"{word!r} is not an axis")
        else:
            found.append(Axis(match[2], int(match[1] or 1)))
    return tuple(found)


def mismatch(op: type[Op], shapes: Mapping[str, tuple[object, ...]]) -> tuple[str, str] | None:
    """Compares operands' shapes with the op's SHAPES. Returns the first operand that does not fit and the shape that it
    must have, or None.

    shapes: the shape of each operand that has one. Each name of an axis gets its size from the first operand with this
    axis, and later operands must agree. A size is a number, or a `Size` that differs from step to step.
    """
    bound: dict[str, object] = {}
    for name, shape in shapes.items():
        wanted = axes(op.SHAPES[name])
        fits = len(wanted) == len(shape)
        for axis, found in zip(wanted, shape, strict=False):
            if axis.name == "*":
                continue
            if not axis.name:
                fits = fits and found == axis.times
            elif isinstance(found, int):
                one = found // axis.times
                fits = fits and found % axis.times == 0 and bound.setdefault(axis.name, one) == one
            else:
                fits = fits and axis.times == 1 and bound.setdefault(axis.name, found) == found
        if not fits:
            known = " ".join(
                str(axis.times * bound[axis.name]) if isinstance(bound.get(axis.name), int) else axis.name  # type: ignore[operator]
                for axis in wanted
            )
            return name, f"({known.replace(' ', ', ')})"
    return None
