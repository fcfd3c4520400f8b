"""How the columns of a value are divided among ranks, and the part of a weight that one rank has.

A value's columns are divided in segments: [q | k | v] are three. The units of a segment are heads, or single columns.
Of n units, rank r of R has those from n r // R up to n (r + 1) // R.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from twostroke.ops.program.values import Tensor, Weight


@dataclass(frozen=True, slots=True)
class Rank:
    """One of `count` processes that hold a model together."""

    index: int
    count: int

    def share(self, units: int) -> range:
        """Returns which of `units` units (heads, or columns) this rank has."""
        return range(units * self.index // self.count, units * (self.index + 1) // self.count)


@dataclass(frozen=True, slots=True)
class ColumnSegment:
    """Columns [first, first + width), divided in units of `unit` columns: the dimension of a head, or 1."""

    first: int
    width: int
    unit: int

    def columns(self, rank: Rank) -> range:
        """Returns the columns of one rank."""
        units = rank.share(self.width // self.unit)
        return range(self.first + units.start * self.unit, self.first + units.stop * self.unit)


Segments = tuple[ColumnSegment, ...]


def segments_of(views: Iterable[tuple[int, int, int]], width: int) -> Segments:
    """Divides a value's columns at every border of a view, so that each view consists of whole segments. views: (first
    column, number of columns, unit) of the columns that calls use; a unit, such as a head, must stay on one rank.
    width: the number of columns."""
    known = list(views)
    edges = sorted({0, width} | {edge for first, count, _ in known for edge in (first, first + count)})
    found = []
    for begin, end in zip(edges, edges[1:], strict=False):
        units = {unit for first, count, unit in known if first <= begin and end <= first + count and unit > 1}
        found.append(ColumnSegment(begin, end - begin, max(units, default=1)))
    return tuple(found)


def within(segments: Segments, first: int, width: int) -> Segments:
    """Returns those segments of a value (ranges of columns, such as q, k and v) that lie in columns [first, first +
    width)."""
    return tuple(each for each in segments if first <= each.first and each.first + each.width <= first + width)


def width_of(segments: Segments, rank: Rank) -> int:
    """Returns how many columns of these segments a rank has."""
    return sum(len(each.columns(rank)) for each in segments)


def part_of(weight: Weight, segments: Segments, rank: Rank) -> Weight:
    """Returns the weight that makes a rank's columns. It has the rank's rows of each matrix, and reads them from the
    same tensors."""
    rows = [each.columns(rank) for each in segments]
    return replace(
        weight,
        key=f"{weight.key}@{rank.index}/{rank.count}",
        rows=sum(map(len, rows)),
        parts=_parts(weight.parts, weight, rows),
        bias=_parts(weight.bias, weight, rows),
    )


def _parts(tensors: Sequence[Tensor], weight: Weight, rows: Sequence[range]) -> tuple[Tensor, ...]:
    return tuple(
        part
        for matrix in range(weight.matrices)
        for each in rows
        for part in pieces_of(tensors, matrix * weight.rows + each.start, matrix * weight.rows + each.stop)
    )


def pieces_of(tensors: Sequence[Tensor], first: int, end: int) -> Iterator[Tensor]:
    """Yields the pieces of tensors that hold rows [first, end), where the tensors' rows are counted one tensor after
    the other."""
    at = 0
    for tensor in tensors:
        begin, stop = max(first, at), min(end, at + tensor.length)
        if begin < stop:
            stored = (tensor.rows[0] if tensor.rows else 0) - at
            yield replace(tensor, rows=(begin + stored, stop + stored))
        at += tensor.length
