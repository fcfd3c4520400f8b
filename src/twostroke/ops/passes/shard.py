"""shard: the program of one of several ranks that hold a model together (tensor parallel).

The outputs of a product are divided among the ranks, but one output's sum is computed by one rank. A rank has some rows
of each matrix and some of the heads, and an explicit call gathers what the next call needs whole. So a row's bits are
those of one process. Every rank computes norms, routes and the residual stream itself. Experts' down matrices are
divided. Their gate and up matrices are whole on each rank, because the values between them stay inside one op. Rows
that come from outside of the program, such as image rows, are given to every rank.

Apply this pass to the program that the model file traced, and fuse afterwards. At each `gather` all ranks exchange
their parts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op, axes, signature
from twostroke.ops.program.program import Program
from twostroke.ops.program.ranks import ColumnSegment, Rank, Segments, part_of, pieces_of, segments_of, width_of, within
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Cache, Indices, PagedKV, Value, Vector, VectorForm, Weight, join
from twostroke.ops.ranks.gather import Gather
from twostroke.ops.rows.rotate_heads import RotateHeads
from twostroke.types.errors import ConfigError


def shard(program: Program, rank: int, ranks: int) -> Program:
    """Returns the calls of rank `rank` of `ranks`. With one rank, this is the whole program.

    Raises ConfigError where heads cannot be divided among the ranks; the error names the counts that are possible.
    """
    if not 0 <= rank < ranks:
        raise ValueError(f"there is no rank {rank} of {ranks}")
    if ranks == 1:
        return program
    division = _Division.of(program, ranks)
    division.check_heads()
    return _Shard(program, division, Rank(rank, ranks)).program()


def shard_model(model: Model, rank: int, ranks: int) -> Model:
    """Returns a rank's part of a model, with its calls fused. Raises ConfigError as `shard` does."""
    plain = shard(model.plain, rank, ranks)
    program = fuse(plain, PATTERNS)
    check(program)
    return replace(model, plain=plain, program=program, part=f"rank {rank} of {ranks}")


@dataclass(frozen=True, slots=True)
class _Division:
    """Which values and caches are divided among the ranks. segments: for each divided value that owns memory, the
    consecutive segments of its columns. Every rank has a share of each segment."""

    ranks: int
    segments: dict[Value, Segments]
    caches: frozenset[Cache]

    @classmethod
    def of(cls, program: Program, ranks: int) -> _Division:
        """Finds out which values and caches are divided among ranks. It begins with all that could be divided, and
        takes out what some call needs whole. It repeats this until nothing changes."""
        results = [call.result for call in program.calls if call.result and (call.DIVIDED_WEIGHT or call.BY_HEADS)]
        roots, caches = {value.root for value in results}, set(program.caches)
        attended: set[Value] = set()
        for call in reversed(program.calls):  # heads that are rotated before attention are read by attention, too
            if call.BY_HEADS and (_caches(call) or (isinstance(call, RotateHeads) and call.out.root in attended)):
                attended |= {value.root for value in _values(call)}
        before = -1
        while before != len(roots) + len(caches):
            before = len(roots) + len(caches)
            segments = _segments(program, roots, caches)
            for call in program.calls:
                if call.DIVIDED_WEIGHT and call.result:
                    root = call.result.root
                    if call.result.base is not None or any(
                        _stays_whole(each, ranks, root in attended) for each in segments.get(root, ())
                    ):
                        roots.discard(root)
                elif not _by_heads(call, roots, caches):
                    roots -= {call.result.root} if call.result else set()
                    caches -= _caches(call)
        return cls(ranks, _segments(program, roots, caches), frozenset(caches))

    def check_heads(self) -> None:
        """Raises ConfigError where the heads cannot be divided evenly among the ranks."""
        counts = {_units(each) for found in self.segments.values() for each in found if each.unit > 1}
        counts |= {cache.kind.kv_heads for cache in self.caches if isinstance(cache.kind, PagedKV)}
        if any(count % self.ranks for count in counts):
            common = math.gcd(*counts)
            would_do = [str(count) for count in range(1, common + 1) if common % count == 0]
            raise ConfigError(
                f"This model cannot be divided among {self.ranks} ranks.",
                why=f"Its layers have {', '.join(map(str, sorted(counts)))} heads; each rank needs the same number.",
                fix=f"Use {' or '.join(would_do)}.",
            )

    def by_heads(self, call: Op) -> bool:
        """Returns whether a rank can compute its heads or columns of the call's result from its own heads or columns
        alone."""
        return _by_heads(call, set(self.segments), set(self.caches))


def _stays_whole(segment: ColumnSegment, ranks: int, attended: bool) -> bool:
    """Returns whether every rank computes all columns of a segment. For plain columns, this is so if there are fewer
    columns than ranks. For heads, it is so if `ranks` does not divide their number, unless they are `attended`: a call
    that uses a KV cache head by head reads them. `check_heads` raises an error for such heads."""
    if segment.unit == 1:
        return segment.width < ranks
    return not attended and _units(segment) % ranks != 0


def _units(segment: ColumnSegment) -> int:
    return segment.width // segment.unit


def _values(call: Op) -> Iterator[Value]:
    return (item for item in call.operands() if isinstance(item, Value))


def _caches(call: Op) -> set[Cache]:
    return {item for item in call.operands() if isinstance(item, Cache)}


def _by_heads(call: Op, roots: set[Value], caches: set[Cache]) -> bool:
    if not call.BY_HEADS or not _caches(call) <= caches:
        return False
    return all(value.root in roots for value in _values(call)) and not _divides_a_vector(call)


def _divides_a_vector(call: Op) -> bool:
    """Returns whether a rank with some of the call's heads or columns would need a part of a vector (such as attention
    sinks) that cannot be divided. Such a call is computed whole. `column_numbers`, one number for each column, can be
    divided if the program itself has them. So can those of whole heads (SHARED_BIAS), because a rank's columns are then
    neighbours."""
    numbers = call.column_numbers
    if numbers is not None and numbers.parts and numbers.form is not VectorForm.SHARED_BIAS:
        return True
    divided = {axes(call.SHAPES[operand.name])[1].name for operand, _ in _pairs(call, Value)}
    return any(axes(call.SHAPES[operand.name])[0].name in divided for operand, _ in _pairs(call, Vector))


def _named(call: Op) -> Iterator[tuple[str, Value]]:
    return ((operand.name, value) for operand, value in _pairs(call, Value))


def _pairs(call: Op, kind: type) -> list[tuple[Any, Any]]:
    pairs = zip(signature(type(call)), call.operands(), strict=True)
    return [(operand, item) for operand, item in pairs if isinstance(item, kind)]


def _segments(program: Program, roots: set[Value], caches: set[Cache]) -> dict[Value, Segments]:
    views: dict[Value, set[tuple[int, int, int]]] = {root: set() for root in roots}
    same: list[tuple[Value, Value]] = []
    for call in program.calls:
        divided = _by_heads(call, roots, caches)
        same += _same_columns(call) if divided else []
        for operand, value in _pairs(call, Value):
            if value.root not in views:
                continue
            pieces = axes(call.SHAPES[operand.name])[1].times if divided and operand.name in call.SHAPES else 1
            unit, each = value.shape[-1] if divided and len(value.shape) > 1 else 1, value.width // pieces
            views[value.root] |= {(value.offset + piece * each, each, unit) for piece in range(pieces)}
    while any([_carried(views, source, target) for source, target in same]):
        pass
    return {root: segments_of(found, root.width) for root, found in views.items()}


def _same_columns(call: Op) -> list[tuple[Value, Value]]:
    """Returns pairs of the call's values that must be divided in the same way: a rank that has column i of one value
    needs column i of the other."""
    shaped = [(call.SHAPES[operand.name], value) for operand, value in _pairs(call, Value)]
    return [
        (one, other) for shape, one in shaped for its, other in shaped if its == shape and one.root is not other.root
    ]


def _carried(views: dict[Value, set[tuple[int, int, int]]], source: Value, target: Value) -> bool:
    """Adds to the views of `target` all views that lie inside `source`, moved to where `target` begins. Returns whether
    a view was added that was not known yet. A view is (first column, number of columns, size of a head). `views` has
    the views of each value that owns memory."""
    end, shift = source.offset + source.width, target.offset - source.offset
    inside = {each for each in views[source.root] if source.offset <= each[0] and each[0] + each[1] <= end}
    new = {(first + shift, count, unit) for first, count, unit in inside} - views[target.root]
    views[target.root] |= new
    return bool(new)


_Reader = tuple[Weight, Indices | None]
"""The matrix and the row positions of the one product that reads a gathered value. The ranks may exchange int8 codes of
such a value, because this product would round it to the same codes."""


class _Shard:
    """Records the calls of one rank. A value of the whole program becomes this rank's columns (`_parts`), all columns
    (`_wholes`), or both."""

    def __init__(self, program: Program, division: _Division, rank: Rank) -> None:
        self._source, self._division, self._rank = program, division, rank
        self._trace = Tracer()
        self._parts: dict[Value, Value] = {}
        self._wholes: dict[Value, Value] = {}
        self._weights: dict[tuple[Weight, Segments], Weight] = {}
        self._caches: dict[Cache, Cache] = {}
        self._vectors: dict[Vector, Vector] = {}
        self._readers = Counter(value.root for call in program.calls for value in call.reads())
        self._wholes |= {value: self._trace.given(*value.shape) for value in program.given}

    def program(self) -> Program:
        """Records all calls and returns the rank's program."""
        for call in self._source.calls:
            if call.DIVIDED_WEIGHT and call.result is not None:
                self._product(call, call.result)
            elif call.OWN_ROWS and call.result is not None:
                self._own(call, call.result)
            elif self._division.by_heads(call):
                self._record(call, self._part, self._parts)
            else:
                self._record(call, self._whole, self._wholes)
        return self._trace.program(self._whole(self._source.logits))

    def _product(self, call: Op, out: Value) -> None:
        """Records the product with this rank's rows of the weight, which make some columns of the result. Where the
        result is not divided, the columns of all ranks are gathered at once."""
        segments = self._division.segments.get(out.root, (ColumnSegment(0, out.width, 1),))
        if any(_units(each) < self._rank.count for each in segments):
            return self._record(call, self._whole, self._wholes)
        made = self._trace.rows(out.rows, width_of(segments, self._rank))
        weight = getattr(call, call.DIVIDED_WEIGHT)
        part = self._weights.setdefault((weight, segments), part_of(weight, segments, self._rank))
        scratch = [getattr(call, name) for name in call.SCRATCH]
        operands: list[Any] = []
        for item in call.operands():
            if item is out or item is weight:
                operands.append(made if item is out else part)
            elif isinstance(item, Value):
                rounds = bool(call.ROUNDED) and item is getattr(call, call.ROUNDED) and self._readers[item.root] == 1
                reader = (part, getattr(call, "positions", None)) if rounds else None
                operands.append(
                    self._trace.rows(item.rows, *item.shape) if item in scratch else self._whole(item, reader)
                )
            else:
                operands.append(item)
        self._trace.record(type(call)(*operands))
        if out.root in self._division.segments:
            self._parts[out] = made
        else:
            self._wholes[out] = _shaped(self._gathered(self._room(out), segments, made), out)

    def _own(self, call: Op, out: Value) -> None:
        """Records a call that each rank computes for its own rows of a weight, and a gather that joins the results of
        all ranks."""
        weight = getattr(call, call.OWN_ROWS)
        segments: Segments = (ColumnSegment(0, weight.rows, 1),)
        if (weight, segments) not in self._weights:  # the product has all rows on each rank
            return self._record(call, self._whole, self._wholes)
        values = {item: self._whole(item) for item in _values(call) if item is not out}
        made, first = self._trace.rows(out.rows, out.width), segments[0].columns(self._rank).start
        own = {name: values[item] for name, item in _named(call) if item in values}
        part = self._weights[weight, segments]
        self._trace.record(replace(call, **own, **{"out": made, call.OWN_ROWS: part, "first": first}))  # type: ignore[type-var]
        room = self._trace.rows(out.rows, out.width * self._rank.count)
        self._trace.record(Gather(room, made))
        self._wholes[out] = room

    def _room(self, out: Value) -> Value:
        """Returns memory for all columns of a value that has not been written yet. A view of a larger value gets its
        columns in that value's memory."""
        if out.base is None:
            return self._trace.rows(out.rows, out.width)
        if out.root not in self._wholes:
            self._wholes[out.root] = self._trace.rows(out.rows, out.root.width)
        return self._wholes[out.root].columns(out.offset, out.width)

    def _record(self, call: Op, form: Callable[[Value], Value], forms: dict[Value, Value]) -> None:
        """Records a call for this rank, either on whole values (form: `_whole`, forms: `_wholes`) or on this rank's
        columns of them (form: `_part`, forms: `_parts`). form: returns the rank's value for a value of the whole
        program. forms: the call's results are added to it."""
        operands: list[Any] = []
        fresh = [value for value in (call.result, *(getattr(call, name) for name in call.SCRATCH)) if value is not None]
        for item in call.operands():
            if isinstance(item, Value) and item in fresh:
                if item.changed and item.base is not None:
                    forms[item] = form(item.base).written()
                elif forms is self._wholes:
                    forms[item] = _shaped(self._room(item), item)
                else:
                    forms[item] = _shaped(self._trace.rows(item.rows, self._part_width(item)), item)
                operands.append(forms[item])
            elif isinstance(item, Value):
                operands.append(form(item))
            elif isinstance(item, Vector) and item is call.column_numbers and call.result and forms is self._parts:
                operands.append(self._own_numbers(item, call.result))
            else:
                operands.append(self._cache(item) if isinstance(item, Cache) else item)
        self._trace.record(type(call)(*operands))

    def _own_numbers(self, vector: Vector, value: Value) -> Vector:
        """Returns this rank's elements of a vector that has one element for each column of a divided value."""
        segments = within(self._division.segments[value.root], value.offset, value.width)
        columns = [column - value.offset for each in segments for column in each.columns(self._rank)]
        own = self._vectors.get(vector)
        if own is None:
            length = len(columns)
            if vector.parts:  # whole heads, which lie one after the other
                key = f"{vector.key}@{self._rank.index}/{self._rank.count}"
                parts = tuple(pieces_of(vector.parts, columns[0], columns[-1] + 1))
                own = replace(vector, key=key, length=length, parts=parts)
            else:
                own = replace(vector, length=length, numbers=tuple(vector.numbers[column] for column in columns))
            self._vectors[vector] = own
        return own

    def _part_width(self, value: Value) -> int:
        return width_of(within(self._division.segments[value.root], value.offset, value.width), self._rank)

    def _part(self, value: Value) -> Value:
        """Returns this rank's columns of a divided value."""
        if value not in self._parts:
            if value.parts:
                return join(*map(self._part, value.parts))
            base = _base_of(value)
            segments = self._division.segments[value.root]
            before = within(segments, base.offset, value.offset - base.offset)
            view = self._part(base).columns(width_of(before, self._rank), self._part_width(value))
            self._parts[value] = _shaped(view, value)
        return self._parts[value]

    def _whole(self, value: Value, reader: _Reader | None = None) -> Value:
        """Returns all columns of a value. They are gathered where the value is divided."""
        if value not in self._wholes:
            if value.root in self._division.segments:
                segments = within(self._division.segments[value.root], value.offset, value.width)
                room = self._trace.rows(value.rows, value.width)
                self._wholes[value] = _shaped(self._gathered(room, segments, self._part(value), reader), value)
            elif value.parts:
                return join(*map(self._whole, value.parts))
            else:
                base = _base_of(value)
                view = self._whole(base).columns(value.offset - base.offset, value.width)
                self._wholes[value] = _shaped(view, value)
        return self._wholes[value]

    def _gathered(self, room: Value, segments: Segments, part: Value, reader: _Reader | None = None) -> Value:
        """Records the calls that gather all columns of a value, and returns them, written to `room`. segments: the
        ranges of columns, such as [q | k | v], of which each is divided among the ranks. part: this rank's columns of
        all segments. reader: the product that reads the result; None where another call reads it too."""
        outs, at = [], 0
        weight, positions = reader or (None, None)
        for each in segments:
            width = len(each.columns(self._rank))
            outs.append(room if len(segments) == 1 else room.columns(each.first - segments[0].first, each.width))
            first = each.first - segments[0].first + each.columns(self._rank).start
            own = part.columns(at, width)
            self._trace.record(Gather(outs[-1], own, weight, 0 if weight is None else first, positions))
            at += width
        return outs[0] if len(outs) == 1 else join(*outs)

    def _cache(self, cache: Cache) -> Cache:
        if cache not in self._division.caches or not isinstance(cache.kind, PagedKV):
            return cache
        kind = replace(cache.kind, kv_heads=cache.kind.kv_heads // self._rank.count)
        return self._caches.setdefault(cache, Cache(cache.index, kind))


def _base_of(view: Value) -> Value:
    if view.base is None:
        raise ValueError("a value is read before it is written")
    return view.base


def _shaped(value: Value, like: Value) -> Value:
    """Returns a value with its columns shaped as heads of the size that `like` has. Where the value is not whole heads,
    it is flat, (columns,): an op gets such a value only after other ranks' columns were gathered."""
    whole_heads = len(like.shape) > 1 and value.width % like.shape[-1] == 0
    return value.heads(value.width // like.shape[-1]) if whole_heads else value.flat()
