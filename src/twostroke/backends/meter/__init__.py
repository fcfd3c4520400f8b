"""The meter backend: does no arithmetic, adds up what the ops would cost.

Knows: the ops' cost functions.
Must not know: models, machines, time.
"""

from __future__ import annotations

from twostroke.cost.work import Work
from twostroke.ops import (
    attention,
    embed,
    feed_forward,
    gather_rows,
    head_norm,
    kv_write,
    linear,
    linear_add,
    linear_silu,
    rms_norm,
    rope,
)
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array, KVLayer, PackedWeight, RopeTable


class MeterOps:
    """Satisfies `ops.protocol.Ops`; `work` holds the Work of each op name so far."""

    def __init__(self) -> None:
        self.work: dict[str, Work] = {}

    def total(self) -> Work:
        """The sum over all ops."""
        return sum(self.work.values(), Work())

    def _count(self, name: str, work: Work) -> None:
        self.work[name] = self.work.get(name, Work()) + work

    def embed(self, out: F32Array, table: PackedWeight, token_ids: I32Array) -> None:
        """Counts ops/embed.py."""
        self._count("embed", embed.cost(out, table, token_ids))

    def rms_norm(self, out: F32Array, x: F32Array, weight: F32Array, eps: float) -> None:
        """Counts ops/rms_norm.py."""
        self._count("rms_norm", rms_norm.cost(out, x, weight, eps))

    def head_norm(self, x: F32Array, weight: F32Array, eps: float) -> None:
        """Counts ops/head_norm.py."""
        self._count("head_norm", head_norm.cost(x, weight, eps))

    def linear(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """Counts ops/linear.py."""
        self._count("linear", linear.cost(out, x, weight))

    def linear_add(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """Counts ops/linear_add.py."""
        self._count("linear_add", linear_add.cost(out, x, weight))

    def linear_silu(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """Counts ops/linear_silu.py."""
        self._count("linear_silu", linear_silu.cost(out, x, weight))

    def feed_forward(
        self, out: F32Array, x: F32Array, gate_up: PackedWeight, down: PackedWeight, middle: F32Array
    ) -> None:
        """Counts ops/feed_forward.py."""
        self._count("feed_forward", feed_forward.cost(out, x, gate_up, down, middle))

    def rope(self, x: F32Array, table: RopeTable, positions: I32Array) -> None:
        """Counts ops/rope.py."""
        self._count("rope", rope.cost(x, table, positions))

    def kv_write(self, layer: KVLayer, k: F32Array, v: F32Array, slots: I32Array) -> None:
        """Counts ops/kv_write.py."""
        self._count("kv_write", kv_write.cost(layer, k, v, slots))

    def attention(
        self, out: F32Array, q: F32Array, layer: KVLayer, batch: AttentionBatch, scale: float, window: int
    ) -> None:
        """Counts ops/attention.py."""
        self._count("attention", attention.cost(out, q, layer, batch, scale, window))

    def gather_rows(self, out: F32Array, x: F32Array, rows: I32Array) -> None:
        """Counts ops/gather_rows.py."""
        self._count("gather_rows", gather_rows.cost(out, x, rows))
