"""place: where each value lies in one arena, so that values whose lifetimes do not overlap share memory.

Sizes are those of the largest step. Values are placed from the largest to the smallest, each at the lowest place that
is free during its whole lifetime (greedy by size; Pisarchyk and Lee, 2020).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from twostroke.ops.program.check import writes
from twostroke.ops.program.folded import fold_of
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Size, Value

LINE_BYTES = 64
"""The size of a cache line, in bytes. Each row begins at a line, because storing a vector of 64 bytes across two lines
is slower."""

ELEMENT_BYTES = 4


class Placement(Struct, frozen=True, eq=False):
    """Where each value lies in the arena, the memory block of a program. offsets: for each value that owns memory, the
    distance from the arena's begin, in bytes. num_bytes: the size of the arena. fewer: for each value that comes after
    the fold of an image encoder, its largest number of rows; other values have a row for each row of the step."""

    offsets: Mapping[Value, int]
    num_bytes: int
    fewer: Mapping[Value, int]


def _first_byte(placed: tuple[int, int, _Life]) -> int:
    return placed[0]


class _Life(Struct):
    """The memory that a value needs, and the calls [first, last] during which it needs it."""

    num_bytes: int
    first: int
    last: int


@lru_cache(maxsize=256)
def place(program: Program, max_tokens: int, max_logit_rows: int) -> Placement:
    """Decides where each value lies in the arena, for steps of at most `max_tokens` rows and `max_logit_rows` rows of
    logits."""
    rows = {Size.TOKENS: max_tokens, Size.LOGIT_ROWS: max_logit_rows}
    lives = _lives(program, rows)
    fewer = _with_fewer_rows(program, lives, max_tokens)
    for root, count in fewer.items():
        lives[root].num_bytes = _num_bytes(root, {root.rows: count})
    placed: list[tuple[int, int, _Life]] = []
    offsets: dict[Value, int] = {}
    for root, life in sorted(lives.items(), key=lambda item: -item[1].num_bytes):
        at = 0
        for begin, end, other in placed:
            apart = other.last < life.first or life.last < other.first
            if not apart and begin < at + life.num_bytes and at < end:
                at = end
        offsets[root] = at
        insort(placed, (at, at + life.num_bytes, life), key=_first_byte)
    return Placement(offsets, max((end for _, end, _ in placed), default=0), fewer)


def _with_fewer_rows(program: Program, lives: Mapping[Value, _Life], max_tokens: int) -> dict[Value, int]:
    """Returns the largest number of rows of each value after the fold: the place in an image encoder where groups of
    neighbouring rows become one row each. The result is empty for other programs."""
    fold = fold_of(program)
    if fold is None:
        return {}
    written = {root: life.first >= fold.at or root is fold.target for root, life in lives.items()}
    return {root: -(-max_tokens // fold.group) for root in written if written[root] and root.rows is Size.TOKENS}


def _lives(program: Program, rows: Mapping[Size, int]) -> dict[Value, _Life]:
    lives: dict[Value, _Life] = {}
    end = len(program.calls)
    for value in program.given:
        lives[value.root] = _Life(_num_bytes(value.root, rows), 0, 0)
    for index, call in enumerate(program.calls):
        in_head = index >= len(program.body)
        for value in (*call.reads(), *writes(call)):
            root = value.root
            life = lives.setdefault(root, _Life(_num_bytes(root, rows), index, index))
            # The head runs again for other rows, so the values that it takes from the body live until the end.
            life.last = end if in_head and life.first < len(program.body) else index
    for value in (program.logits, *program.kept):
        lives[value.root].last = end
    if program.cuts:
        for life in lives.values():
            _keep_across_cuts(life, program)
    return lives


def _keep_across_cuts(life: _Life, program: Program) -> None:
    """Extends the life of a value that is made before one of `Program.cuts` and read after it. Between two cuts, rows
    are computed block by block. So the value lives from the first call of the part that makes it to the last call of
    the part that reads it last."""
    edges = [0, *program.cuts, len(program.body)]
    first, last = (bisect_right(edges, at) - 1 for at in (life.first, life.last))
    if first != last and life.first < len(program.body):
        life.first = edges[first]
        if life.last < len(program.body):
            life.last = edges[last + 1] - 1


def _num_bytes(root: Value, rows: Mapping[Size, int]) -> int:
    return -(-rows[root.rows] * root.width * ELEMENT_BYTES // LINE_BYTES) * LINE_BYTES
