"""fuse: replace neighbouring calls by one call that does the same, by a list of patterns.

The new call must give the same bits as the calls that it replaces; each pattern is tested for this. Two calls are not
fused where the new call would overwrite memory that it still reads: x + linear(x) is not one product added to x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value

Pattern = Callable[[Op, Op], Op | None]
"""A function pattern(first, second) that returns one call in place of two neighbours, or None. Only `second` reads the
result of `first`."""


def fuse(program: Program, patterns: Sequence[Pattern]) -> Program:
    """Applies each pattern wherever it fits, in the given order."""
    calls = list(program.calls)
    for pattern in patterns:
        calls = _apply(calls, pattern, (program.logits, *program.kept))
    return Program.of(tuple(calls), program.logits, program.given, program.kept)


def _apply(calls: list[Op], pattern: Pattern, read_later: Sequence[Value]) -> list[Op]:
    readers = Counter(root for call in calls for root in {value.root for value in call.reads()})
    readers.update(value.root for value in read_later)
    found: list[Op] = []
    for call in calls:
        before = found[-1] if found else None
        if before is not None and before.result is not None and readers[before.result.root] == 1:
            merged = None if _overwrites(before, call) else pattern(before, call)
            if merged is not None:
                found[-1] = merged
                continue
        found.append(call)
    return found


def _overwrites(first: Op, second: Op) -> bool:
    """Returns whether `second` changes memory in place that `first` reads and does not change itself."""
    if first.result is None or second.result is None:
        return False
    changed = second.result.root
    return first.result.root is not changed and any(value.root is changed for value in first.reads())
