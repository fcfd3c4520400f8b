"""Latent attention over positions that an index of small keys chooses (sparse attention; DeepSeek-AI 2025).

Knows: the ops, usual names of tensors.
Must not know: config fields, norms before and after the block.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.latent import LatentHeads, keep_latents, output, queries, query_latent
from twostroke.models.common.norm import Norm, NormKind
from twostroke.ops.chosen_latent_attention import chosen_latent_attention
from twostroke.ops.index_select import index_select
from twostroke.ops.latent_write import latent_write
from twostroke.ops.linear import linear
from twostroke.ops.rope import rope
from twostroke.ops.scale import scale
from twostroke.program.trace import Tracer
from twostroke.program.values import LatentKV, Rope, Value

INDEX_NORM = Norm(1e-6, NormKind.LAYER)
PREFIX = "self_attn.indexer."


@dataclass(frozen=True, slots=True)
class Index:
    """heads, dim: of its queries; keys have one head. chosen: positions of a row at most. The first elements of a head
    turn as those of the attention do; the checkpoint's rotary pairs lie apart."""

    heads: int
    dim: int
    chosen: int


def attend_chosen(t: Tracer, shape: LatentHeads, index: Index, h: Value) -> Value:
    """The block's output for the normed rows h, not yet added."""
    cache, latent = keep_latents(t, shape, h), query_latent(t, shape, h)
    chosen = _choose(t, shape, index, h, latent)
    asked, turned = queries(t, shape, latent)
    return output(t, shape, chosen_latent_attention(asked, turned, chosen, cache, shape.scale))


def _choose(t: Tracer, shape: LatentHeads, index: Index, h: Value, latent: Value) -> Value:
    """The positions that each row attends to."""
    turn = Rope(shape.turn)
    keys = linear(h, t.matrix("index_keys", {f"{PREFIX}wk": index.dim}, shape.hidden_size))
    keys = INDEX_NORM(t, f"{PREFIX}k_norm", keys, in_place=True)
    keys = rope(keys.heads(1), turn, t.positions).flat()
    cache = t.cache(LatentKV(1, index.dim, 0, index.dim))
    latent_write(cache, keys, t.slots)
    made = linear(latent, t.matrix("index_queries", {f"{PREFIX}wq_b": index.heads * index.dim}, shape.query_rank))
    asked = rope(made.heads(index.heads), turn, t.positions)
    weights = linear(h, t.matrix("router", {f"{PREFIX}weights_proj": index.heads}, shape.hidden_size))
    return index_select(asked, scale(weights, (index.heads * index.dim) ** -0.5), cache, index.chosen)
