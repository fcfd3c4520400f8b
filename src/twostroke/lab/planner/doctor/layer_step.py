"""The ops of one layer over some rows, on synthetic weights and pages, as calls that can be timed together or
separately."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twostroke.backends.cpu.recorded import CallRecorder
from twostroke.lab.planner.doctor.synthetic import Layer, LayerShape
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array, KVLayer, RopeTable
from twostroke.types.spec.formats import PAGE_TOKENS

SMALL_INPUT = np.float32(1e-5)
"""The size of the inputs of products. Synthetic weights are large. With inputs of size 1, silu would give denormal
numbers, and a CPU takes a hundred cycles for each of them."""


def last_rows(rows: int, context: int) -> AttentionBatch:
    """Returns the attention batch in which one sequence of `context` positions computes its last `rows`. Its pages lie
    one after the other."""
    table = np.arange(-(-context // PAGE_TOKENS), dtype=np.int32)[None, :]
    return AttentionBatch(np.array([0, rows], np.int32), np.array([context], np.int32), table)


def one_row_each(context: int, table: I32Array) -> AttentionBatch:
    """Returns a batch with one new row of each sequence. table: the pages of each sequence."""
    sequences = len(table)
    return AttentionBatch(np.arange(sequences + 1, dtype=np.int32), np.full(sequences, context, np.int32), table)


class LayerStep:
    """The ops of one layer over `rows` rows, for timing. All layers read and write the same activations.

    batch: the sequences of the rows; None where all rows belong to one sequence.
    """

    def __init__(
        self,
        normal: Callable[..., F32Array],
        rows: int,
        shape: LayerShape,
        kv: KVLayer,
        batch: AttentionBatch | None = None,
    ) -> None:
        self._kv, self._heads, self._scale = kv, shape.heads, shape.head_dim**-0.5
        self._gains = np.full(shape.hidden, SMALL_INPUT, np.float32)
        self._hidden, self._normed = normal(rows, shape.hidden), SMALL_INPUT * normal(rows, shape.hidden)
        self._qkv = normal(rows, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        self._attended, self._activated = normal(rows, shape.heads, shape.head_dim), normal(rows, shape.inner)
        half = shape.head_dim // 2
        self._angles = RopeTable(np.ones((rows, half), np.float32), np.zeros((rows, half), np.float32))
        self._positions = np.arange(rows, dtype=np.int32)
        self._batch = batch or last_rows(rows, rows)

    def all(self, ops: CallRecorder, layer: Layer) -> None:
        """Runs all ops of a Llama layer, in the usual order of a layer with a norm before each block."""
        flat = len(self._positions), -1
        ops.rms_norm(self._normed, self._hidden, self._gains, 1e-5)
        ops.linear(self._qkv.reshape(flat), self._normed, layer.qkv)
        self._place(ops)
        self.attention(ops)
        ops.linear_add(self._hidden, self._attended.reshape(flat), layer.o)
        ops.rms_norm(self._normed, self._hidden, self._gains, 1e-5)
        self._feed_forward(ops, layer)

    def products(self, ops: CallRecorder, layer: Layer) -> None:
        """Runs the layer's matrix products: q, k and v together, the output, and both of the feed-forward block."""
        flat = len(self._positions), -1
        ops.linear(self._qkv.reshape(flat), self._normed, layer.qkv)
        ops.linear_add(self._hidden, self._attended.reshape(flat), layer.o)
        self._feed_forward(ops, layer)

    def attention(self, ops: CallRecorder) -> None:
        """Runs only the attention of the layer, for the sequences of `batch`."""
        ops.attention(self._attended, self._qkv[:, : self._heads], self._kv, self._batch, self._scale, 0)

    def others(self, ops: CallRecorder) -> None:
        """Runs the ops of the layer that are neither products nor attention."""
        ops.rms_norm(self._normed, self._hidden, self._gains, 1e-5)
        self._place(ops)
        ops.rms_norm(self._normed, self._hidden, self._gains, 1e-5)

    def _place(self, ops: CallRecorder) -> None:
        turned = self._heads + self._kv.kv_heads
        ops.rope(self._qkv[:, :turned], self._angles, self._positions)
        ops.kv_write(self._kv, self._qkv[:, self._heads : turned], self._qkv[:, turned:], self._positions)

    def _feed_forward(self, ops: CallRecorder, layer: Layer) -> None:
        ops.feed_forward(self._hidden, self._normed, layer.gate_up, layer.down, self._activated)
