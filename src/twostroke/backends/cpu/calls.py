"""The eleven ops as calls of native functions: operands checked, arrays turned into addresses.

Knows: the C ABI's argument orders.
Must not know: whether a call is made now or recorded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from weakref import WeakKeyDictionary

from twostroke.backends.cpu.arrays import heads, integers, refuse, rows, vector
from twostroke.backends.cpu.library import KVLayerStruct, WeightStruct
from twostroke.ops.operands import AttentionBatch, F32Array, I32Array, KVLayer, PackedWeight, RopeTable


class Structs:
    """The native structs of weights and KV layers, made once each; they live as long as what they describe."""

    def __init__(self) -> None:
        self._weights: WeakKeyDictionary[PackedWeight, WeightStruct] = WeakKeyDictionary()
        self._layers: WeakKeyDictionary[KVLayer, KVLayerStruct] = WeakKeyDictionary()

    def weight(self, weight: PackedWeight) -> WeightStruct:
        """ts_weight."""
        found = self._weights.get(weight)
        if found is None:
            scales = None if weight.scales is None else weight.scales.ctypes.data
            bias = None if weight.bias is None else weight.bias.ctypes.data
            kind, group = int(weight.format.kind), weight.format.group
            data = weight.data.ctypes.data
            found = WeightStruct(kind, group, weight.rows, weight.columns, data, scales, bias)
            self._weights[weight] = found
        return found

    def layer(self, layer: KVLayer) -> KVLayerStruct:
        """ts_kv_layer."""
        found = self._layers.get(layer)
        if found is None:
            kind, at = int(layer.kind), layer.data.ctypes.data
            found = KVLayerStruct(kind, layer.kv_heads, layer.head_dim, layer.num_pages, at)
            self._layers[layer] = found
        return found


class KernelCalls(ABC):
    """Satisfies `ops.protocol.Ops`; each op ends in `_issue`. Wrong operands raise BackendError and write nothing."""

    def __init__(self, structs: Structs) -> None:
        self._structs = structs

    @abstractmethod
    def _issue(self, op: str, *arguments: Any) -> None:
        """Make or record one call; arguments in the order of the native function, the context left out."""

    def embed(self, out: F32Array, table: PackedWeight, token_ids: I32Array) -> None:
        """See ops/embed.py."""
        out_at, out_stride = rows(out, "embed", "out")
        _same(out.shape, (len(token_ids), table.columns), "embed", "out", out)
        ids = integers(token_ids, len(token_ids), "embed", "token_ids")
        self._issue("embed", self._structs.weight(table), ids, len(token_ids), out_at, out_stride)

    def rms_norm(self, out: F32Array, x: F32Array, weight: F32Array, eps: float) -> None:
        """See ops/rms_norm.py."""
        x_at, x_stride = rows(x, "rms_norm", "x")
        out_at, out_stride = rows(out, "rms_norm", "out")
        _same(out.shape, x.shape, "rms_norm", "out", out)
        weight_at = vector(weight, x.shape[1], "rms_norm", "weight")
        self._issue("rms_norm", x_at, x_stride, weight_at, eps, x.shape[0], x.shape[1], out_at, out_stride)

    def head_norm(self, x: F32Array, weight: F32Array, eps: float) -> None:
        """See ops/head_norm.py."""
        x_at, x_stride = heads(x, "head_norm", "x")
        weight_at = vector(weight, x.shape[2], "head_norm", "weight")
        self._issue("head_norm", x_at, x_stride, weight_at, eps, *x.shape)

    def linear(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """See ops/linear.py."""
        self._linear("linear", out, x, weight, weight.rows)

    def linear_add(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """See ops/linear_add.py."""
        self._linear("linear_add", out, x, weight, weight.rows)

    def linear_silu(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        """See ops/linear_silu.py."""
        self._linear("linear_silu", out, x, weight, weight.rows // 2)

    def feed_forward(
        self, out: F32Array, x: F32Array, gate_up: PackedWeight, down: PackedWeight, middle: F32Array
    ) -> None:
        """See ops/feed_forward.py."""
        x_at, x_stride = rows(x, "feed_forward", "x")
        out_at, out_stride = rows(out, "feed_forward", "out")
        middle_at, middle_stride = rows(middle, "feed_forward", "middle")
        tokens = x.shape[0]
        _same(x.shape, (tokens, gate_up.columns), "feed_forward", "x", x)
        _same(out.shape, (tokens, down.rows), "feed_forward", "out", out)
        _same(middle.shape, (tokens, down.columns), "feed_forward", "middle", middle)
        weights = self._structs.weight(gate_up), self._structs.weight(down)
        self._issue("feed_forward", *weights, x_at, x_stride, tokens, middle_at, middle_stride, out_at, out_stride)

    def rope(self, x: F32Array, table: RopeTable, positions: I32Array) -> None:
        """See ops/rope.py."""
        x_at, x_stride = heads(x, "rope", "x")
        at = integers(positions, x.shape[0], "rope", "positions")
        size = table.cos.size
        cos, sin = (vector(part.reshape(-1), size, "rope", "table") for part in (table.cos, table.sin))
        self._issue("rope", x_at, x_stride, *x.shape, cos, sin, *table.cos.shape, at)

    def kv_write(self, layer: KVLayer, k: F32Array, v: F32Array, slots: I32Array) -> None:
        """See ops/kv_write.py."""
        k_at, k_stride = heads(k, "kv_write", "k")
        v_at, v_stride = heads(v, "kv_write", "v")
        _same(k.shape, (len(slots), layer.kv_heads, layer.head_dim), "kv_write", "k", k)
        _same(v.shape, k.shape, "kv_write", "v", v)
        if k_stride != v_stride:
            raise refuse("kv_write", "v", "strided like k", v)
        at = integers(slots, len(slots), "kv_write", "slots")
        self._issue("kv_write", self._structs.layer(layer), k_at, v_at, k_stride, at, len(slots))

    def attention(
        self, out: F32Array, q: F32Array, layer: KVLayer, batch: AttentionBatch, scale: float, window: int
    ) -> None:
        """See ops/attention.py."""
        q_at, q_stride = heads(q, "attention", "q")
        out_at, out_stride = heads(out, "attention", "out")
        _same(out.shape, q.shape, "attention", "out", out)
        _same(q.shape[2:], (layer.head_dim,), "attention", "q", q)
        sequences = len(batch.context_tokens)
        starts = integers(batch.row_starts, sequences + 1, "attention", "row_starts")
        contexts = integers(batch.context_tokens, sequences, "attention", "context_tokens")
        table = batch.page_table
        if table.ndim != 2 or table.shape[0] != sequences:
            raise refuse("attention", "page_table", f"int32 ({sequences}, pages)", table)
        pages = integers(table.reshape(-1), table.size, "attention", "page_table")
        if sequences and int(batch.row_starts[-1]) != q.shape[0]:
            raise refuse("attention", "row_starts", f"rising from 0 to the {q.shape[0]} rows of q", batch.row_starts)
        arguments = (starts, contexts, sequences, pages, table.shape[1], scale, window, out_at, out_stride)
        self._issue("attention", self._structs.layer(layer), q_at, q_stride, q.shape[1], *arguments)

    def gather_rows(self, out: F32Array, x: F32Array, rows: I32Array) -> None:
        """See ops/gather_rows.py."""
        self._gather(out, x, rows)  # the contract's argument name hides the module's function

    def _gather(self, out: F32Array, x: F32Array, chosen: I32Array) -> None:
        x_at, x_stride = rows(x, "gather_rows", "x")
        out_at, out_stride = rows(out, "gather_rows", "out")
        _same(out.shape, (len(chosen), x.shape[1]), "gather_rows", "out", out)
        at = integers(chosen, len(chosen), "gather_rows", "rows")
        self._issue("gather_rows", x_at, x_stride, x.shape[0], at, len(chosen), x.shape[1], out_at, out_stride)

    def _linear(self, op: str, out: F32Array, x: F32Array, weight: PackedWeight, width: int) -> None:
        x_at, x_stride = rows(x, op, "x")
        out_at, out_stride = rows(out, op, "out")
        _same(out.shape, (x.shape[0], width), op, "out", out)
        _same(x.shape[1:], (weight.columns,), op, "x", x)
        self._issue(op, self._structs.weight(weight), x_at, x_stride, x.shape[0], out_at, out_stride)


def _same(found: tuple[int, ...], expected: tuple[int, ...], op: str, argument: str, array: F32Array) -> None:
    if found != expected:
        raise refuse(op, argument, f"of shape {expected}", array)
