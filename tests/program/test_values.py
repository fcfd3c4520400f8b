"""Views of values: split, columns, heads, flat and join, at their edges."""

from __future__ import annotations

import pytest

from tests.program.programs import rows_of
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import join


def test_split_gives_neighbours_that_cover_every_column() -> None:
    x = rows_of(Tracer(), 12)
    parts = x.split(2, 6, 4)
    assert [(part.offset, part.width) for part in parts] == [(0, 2), (2, 6), (8, 4)]
    assert all(part.root is x for part in parts)
    whole = x.split(12)
    assert (whole[0].offset, whole[0].width) == (0, 12)


@pytest.mark.parametrize("widths", [(), (5,), (6, 5), (6, 7), (12, 1), (0, 12), (-4, 16)])
def test_split_refuses_widths_that_do_not_make_the_row(widths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="elements"):
        rows_of(Tracer(), 12).split(*widths)


@pytest.mark.parametrize(("first", "count"), [(-1, 4), (0, 0), (0, 13), (12, 1), (9, 4)])
def test_columns_outside_the_row_are_refused(first: int, count: int) -> None:
    with pytest.raises(ValueError, match="columns"):
        rows_of(Tracer(), 12).columns(first, count)


def test_columns_of_columns_add_their_offsets() -> None:
    x = rows_of(Tracer(), 12)
    inner = x.columns(3, 8).columns(2, 4)
    assert (inner.offset, inner.width, inner.root) == (5, 4, x)


def test_heads_and_flat_are_the_same_elements() -> None:
    x = rows_of(Tracer(), 12)
    heads = x.columns(4, 8).heads(2)
    assert (heads.shape, heads.offset, heads.flat().shape) == ((2, 4), 4, (8,))
    assert x.flat() is x
    for count in (0, -1, 5, 13):
        with pytest.raises(ValueError, match="heads"):
            x.heads(count)


def test_join_of_neighbours_is_one_view() -> None:
    x = rows_of(Tracer(), 12)
    q, k, v = x.split(4, 4, 4)
    both = join(k.heads(2), v.heads(2))
    assert (both.shape, both.offset, both.root) == ((4, 2), 4, x)
    assert join(q).width == 4
    assert join(q, k, v).shape == (12,)


def test_join_refuses_what_does_not_lie_side_by_side() -> None:
    trace = Tracer()
    x, other = rows_of(trace, 12), rows_of(trace, 12)
    q, k, v = x.split(4, 4, 4)
    for wrong in ((q, v), (k, q), (q, q), (q, other.columns(4, 4)), (q.heads(2), k.heads(1)), (q.heads(2), k)):
        with pytest.raises(ValueError, match="neighbours"):
            join(*wrong)


def test_a_changed_value_lies_where_the_old_one_lay() -> None:
    x = rows_of(Tracer(), 12)
    changed = x.columns(4, 4).written()
    assert (changed.root, changed.offset, changed.width, changed.changed) == (x, 4, 4, True)
