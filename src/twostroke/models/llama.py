"""The Llama family as a program over the ops: Llama 2 and 3, Mistral, Qwen2, Qwen2.5, Qwen3.

What differs between them is flags in ModelSpec: biases live in the packed weights, q and k norms are there or not, each
layer has a window or not, the head is the embedding or not.

Knows: the order of the ops. Must not know: the backend, the scheduler, how weights were stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.models.batch import Batch, Buffers
from twostroke.ops.operands import F32Array, I32Array, KVLayer, RopeTable
from twostroke.ops.protocol import Ops
from twostroke.spec.model import ModelSpec
from twostroke.weights.tree import LayerWeights, ModelWeights


@dataclass(frozen=True, eq=False)
class LlamaModel:
    """A bound model: call `forward` once for each step."""

    spec: ModelSpec
    weights: ModelWeights
    rope: RopeTable
    ops: Ops

    def forward(self, batch: Batch, kv: Sequence[KVLayer], buffers: Buffers) -> F32Array:
        """Logits (R, vocabulary) float32 of `batch.logit_rows`, a view into `buffers`; K and V go to `kv`, one a
        layer."""
        ops, spec = self.ops, self.spec
        tokens = len(batch.token_ids)
        hidden, normed = buffers.hidden[:tokens], buffers.normed[:tokens]
        ops.embed(hidden, self.weights.embedding, batch.token_ids)
        for layer, layer_kv, window in zip(self.weights.layers, kv, spec.windows, strict=True):
            ops.rms_norm(normed, hidden, layer.attn_norm, spec.rms_norm_eps)
            self._attention(layer, layer_kv, window, batch, buffers)
            ops.rms_norm(normed, hidden, layer.mlp_norm, spec.rms_norm_eps)
            self._mlp(layer, tokens, buffers)
        return self.logits(batch.logit_rows, buffers)

    def logits(self, chosen: I32Array, buffers: Buffers) -> F32Array:
        """Logits (R, vocabulary) float32 of these rows of the last `forward`, a view into `buffers`."""
        selected = len(chosen)
        rows, logits = buffers.selected[:selected], buffers.logits[:selected]
        if selected:
            self.ops.gather_rows(rows, buffers.hidden, chosen)
            self.ops.rms_norm(rows, rows, self.weights.final_norm, self.spec.rms_norm_eps)
            self.ops.linear(logits, rows, self.weights.head)
        return logits

    def _attention(self, layer: LayerWeights, kv: KVLayer, window: int, batch: Batch, buffers: Buffers) -> None:
        ops, spec, tokens = self.ops, self.spec, len(batch.token_ids)
        qkv, attended = buffers.qkv[:tokens], buffers.attended[:tokens]
        key_end = spec.num_heads + spec.num_kv_heads
        q, k, v = qkv[:, : spec.num_heads], qkv[:, spec.num_heads : key_end], qkv[:, key_end:]
        ops.linear(qkv.reshape(tokens, -1), buffers.normed[:tokens], layer.qkv)
        if layer.q_norm is not None and layer.k_norm is not None:
            ops.head_norm(q, layer.q_norm, spec.rms_norm_eps)
            ops.head_norm(k, layer.k_norm, spec.rms_norm_eps)
        ops.rope(qkv[:, :key_end], self.rope, batch.positions)
        ops.kv_write(kv, k, v, batch.slots)
        ops.attention(attended, q, kv, batch.attention, spec.head_dim**-0.5, window)
        ops.linear_add(buffers.hidden[:tokens], attended.reshape(tokens, -1), layer.o)

    def _mlp(self, layer: LayerWeights, tokens: int, buffers: Buffers) -> None:
        hidden, normed = buffers.hidden[:tokens], buffers.normed[:tokens]
        self.ops.feed_forward(hidden, normed, layer.gate_up, layer.down, buffers.activated[:tokens])
