"""What a model program may call: the eleven ops, implemented by every backend.

Contracts are in the op's own file. `out` and in-place operands are float32 arrays that the caller owns; nothing is
allocated by an op.

Knows: the signatures.
Must not know: implementations.
"""

from __future__ import annotations

from typing import Protocol

from twostroke.ops.operands import AttentionBatch, F32Array, I32Array, KVLayer, PackedWeight, RopeTable


class Ops(Protocol):
    """A backend."""

    def embed(self, out: F32Array, table: PackedWeight, token_ids: I32Array) -> None:
        """See ops/embed.py."""

    def rms_norm(self, out: F32Array, x: F32Array, weight: F32Array, eps: float) -> None:
        """See ops/rms_norm.py."""

    def head_norm(self, x: F32Array, weight: F32Array, eps: float) -> None:
        """See ops/head_norm.py."""

    def linear(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """See ops/linear.py."""

    def linear_add(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """See ops/linear_add.py."""

    def linear_silu(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """See ops/linear_silu.py."""

    def feed_forward(
        self, out: F32Array, x: F32Array, gate_up: PackedWeight, down: PackedWeight, middle: F32Array
    ) -> None:
        """See ops/feed_forward.py."""

    def rope(self, x: F32Array, table: RopeTable, positions: I32Array) -> None:
        """See ops/rope.py."""

    def kv_write(self, layer: KVLayer, k: F32Array, v: F32Array, slots: I32Array) -> None:
        """See ops/kv_write.py."""

    def attention(
        self, out: F32Array, q: F32Array, layer: KVLayer, batch: AttentionBatch, scale: float, window: int
    ) -> None:
        """See ops/attention.py."""

    def gather_rows(self, out: F32Array, x: F32Array, rows: I32Array) -> None:
        """See ops/gather_rows.py."""


OP_NAMES: tuple[str, ...] = tuple(
    name for name in vars(Ops) if not name.startswith("_") and callable(getattr(Ops, name))
)
"""The instruction set, in program order."""
