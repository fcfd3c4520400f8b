"""Checks a program without running it: each value that a call reads must have been written before, and not been
overwritten since then."""

from __future__ import annotations

from collections.abc import Iterator

from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value

_Written = tuple[int, int, Value]
"""(first, end, value): the newest write to columns [first, end) of some memory was made through `value`, which owns the
memory or is a view of it."""


def check(program: Program) -> None:
    """Raises ValueError for a call that reads a value which was not written or was overwritten. The error names the
    call."""
    columns: dict[Value, list[_Written]] = {}
    for value in program.given:
        _write(value, columns, value)
    for index, call in enumerate(program.calls):
        for value in call.reads():
            _require(value, columns, f"call {index}, {call.NAME}")
        for value in writes(call):
            # No call may read what an op leaves in its room to work in. So the writer that is noted for such room
            # is a fresh value, which no call has.
            _write(value, columns, value if value is call.result else value.fresh())
    _require(program.logits, columns, "the result")
    for value in program.kept:
        _require(value, columns, "the reader of a kept value")


def writes(call: Op) -> Iterator[Value]:
    """Yields the values that a call writes: its result, and its scratch memory."""
    if call.result is not None:
        yield call.result
    for name in call.SCRATCH:
        yield getattr(call, name)


def _require(value: Value, columns: dict[Value, list[_Written]], where: str) -> None:
    first, end = value.offset, value.offset + value.width
    known = _origins(value)
    covered = 0
    for begin, stop, writer in columns.get(value.root, ()):
        overlap = min(stop, end) - max(begin, first)
        if overlap > 0:
            covered += overlap
            if writer not in known:
                raise ValueError(f"{where} reads columns [{first}, {end}) of a value that was overwritten")
    if covered < end - first:
        raise ValueError(f"{where} reads columns [{first}, {end}) before they are written")


def _write(value: Value, columns: dict[Value, list[_Written]], writer: Value) -> None:
    first, end = value.offset, value.offset + value.width
    kept: list[_Written] = [(first, end, writer)]
    for begin, stop, earlier in columns.get(value.root, ()):
        if begin < first:
            kept.append((begin, min(stop, first), earlier))
        if stop > end:
            kept.append((max(begin, end), stop, earlier))
    columns[value.root] = kept


def _origins(value: Value) -> set[Value]:
    """Returns the values whose content `value` shows: itself, and the values that it is a view of."""
    found: set[Value] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        found.add(item)
        waiting.extend(item.parts)
        if item.base is not None and not item.changed:
            waiting.append(item.base)
    return found
