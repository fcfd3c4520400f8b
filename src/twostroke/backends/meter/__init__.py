"""The meter backend: does no arithmetic, adds up what the ops would cost.

Knows: the ops' cost functions.
Must not know: models, machines, time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twostroke.cost.work import Work
from twostroke.ops import add, attention, embed, gather_rows, head_norm, kv_write, linear, rms_norm, rope, silu_mul


class MeterOps:
    """Satisfies `ops.protocol.Ops`; `work` holds the Work of each op name so far."""

    def __init__(self) -> None:
        self.work: dict[str, Work] = {}
        modules = (embed, rms_norm, head_norm, linear, rope, kv_write, attention, silu_mul, add, gather_rows)
        for module in modules:
            name = module.__name__.rpartition(".")[2]
            setattr(self, name, self._counter(name, module.cost))  # type: ignore[attr-defined]

    def total(self) -> Work:
        """The sum over all ops."""
        return sum(self.work.values(), Work())

    def _counter(self, name: str, cost: Callable[..., Work]) -> Callable[..., None]:
        def count(*operands: Any) -> None:
            self.work[name] = self.work.get(name, Work()) + cost(*operands)

        return count
