"""Zamba2: Mamba-2 in every layer, and before some of them a transformer block that layers share (Glorioso et al. 2024).

The shared block reads the residual joined with the token's embedding. Each use of the block adds the results of
low-rank products of its own (LoRA) to those of the block's products. Its output is not added to the residual but to the
input of the layer's Mamba-2 block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import Heads
from twostroke.models.common.blocks.decoder import Decoder, decoder_of, head
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba2 import Mamba2Shape, mamba2_block, read_mamba2
from twostroke.models.common.fields.fields import (
    activation,
    kv_heads,
    read_facts,
    refuse_setting,
    usual_names,
    with_silent,
)
from twostroke.models.common.fields.nested import HEAD_ALONE
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.attention.rope import rope
from twostroke.ops.products.embed import Embed, embed
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import TakeColumns
from twostroke.ops.program.values import PagedKV, Rope, Weight, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gate import gate
from twostroke.types.spec.rope import RopeSpec, rope_from_config

SILENT = defaults("zamba2")
STATE_NAMES = {"n_mamba_heads": "mamba_n_heads", "mamba_ngroups": "mamba_n_groups", "use_conv_bias": "mamba_conv_bias"}
"""This family's names of fields, each with the name that other hybrids have for it."""
STATE_EPS = 1e-5
"""The eps of the norm after the scan, whatever eps the config gives for the other norms."""
KINDS = {"hybrid": True, "mamba": False, "linear_attention": False}
USUAL_HYBRIDS = (*range(6, 48, 6), 47, 51)
"""The layers with the shared block where the config names none. They are those of the 2.7B model."""


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """The transformer block that several layers use. rank: the rank of the low-rank products that each use has of its
    own. adapted: whether the attention has such products too."""

    heads: Heads
    inner_size: int
    activation: Activation
    bias: bool
    rank: int
    adapted: bool
    norm: Norm
    turn: RopeSpec | None

    def __call__(self, t: Tracer, use: int, x: Value, table: Weight) -> Value:
        """Returns the block's output for the residual x. use: which use of the block in the model this is, counted from
        0; each use has low-rank products of its own. table: the embedding matrix, from which the block reads the
        tokens' embeddings again."""
        h = self.norm(t, "input_layernorm", beside_embedding(t, x, table))
        return self._fed(t, use, self.norm(t, "pre_ff_layernorm", self._attended(t, use, h)))

    def _attended(self, t: Tracer, use: int, h: Value) -> Value:
        shape, names = self.heads, tuple(f"self_attn.{name}_proj" for name in "qkv")
        widths = dict(zip(names, (shape.query, shape.kv, shape.kv), strict=True))
        q, k, v = linear(h, t.matrix("qkv", widths, h.width)).split(*widths.values())
        if self.adapted:
            lists = [f"self_attn.linear_{name}_adapter_list.{use}" for name in "qkv"]
            downs = linear(h, t.matrix("adapter_down", {f"{name}.0": self.rank for name in lists}, h.width))
            ups = [
                linear(down, t.matrix("adapter_up", {f"{name}.1": part.width}, self.rank))
                for down, name, part in zip(downs.split(*[self.rank] * 3), lists, (q, k, v), strict=True)
            ]
            q, k, v = (add(part, up) for part, up in zip((q, k, v), ups, strict=True))
        q, k = q.heads(shape.num_heads), k.heads(shape.num_kv_heads)
        if self.turn:
            turned = rope(join(q, k), Rope(self.turn), t.positions).flat()
            q, k = turned.split(shape.query, shape.kv)
            q, k = q.heads(shape.num_heads), k.heads(shape.num_kv_heads)
        cache = t.cache(PagedKV(shape.num_kv_heads, shape.head_dim))
        kv_write(cache, k, v.heads(shape.num_kv_heads), t.slots)
        seen = attention(q, cache, shape.scale).flat()
        return linear(seen, t.matrix("o", {"self_attn.o_proj": shape.hidden_size}, seen.width))

    def _fed(self, t: Tracer, use: int, h: Value) -> Value:
        inner, adapter = self.inner_size, f"feed_forward.gate_up_proj_adapter_list.{use}"
        outputs = {"feed_forward.gate_up_proj": 2 * inner}
        both = linear(h, t.matrix("gate_up", outputs, h.width, bias=self.bias))
        down = linear(h, t.matrix("adapter_down", {f"{adapter}.0": self.rank}, h.width))
        both = add(both, linear(down, t.matrix("adapter_up", {f"{adapter}.1": 2 * inner}, self.rank)))
        last = t.matrix("down", {"feed_forward.down_proj": h.width}, inner, bias=self.bias)
        return linear(gate(both, self.activation), last)


def beside_embedding(t: Tracer, x: Value, table: Weight) -> Value:
    """Returns the residual x joined with the embeddings of the same tokens, so the rows are twice as wide. table: the
    table of embeddings."""
    both = x.fresh(2 * x.width)
    left, right = both.split(x.width, x.width)
    t.record(TakeColumns(left, x, t.constant("columns", tuple(map(float, range(x.width))))))
    t.record(Embed(right, table, t.token_ids))
    return join(left, right)


@architecture("Zamba2ForCausalLM", model_type="zamba2")
def zamba2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Zamba2. layers_block_type has one word for each layer: hybrid (with a transformer block) or mamba.
    Hybrid layer number i, counted from 0, uses the shared block i mod num_mem_blocks. Where tie_word_embeddings is
    false, each hybrid layer has a block of its own, as in transformers."""
    fields = usual_names(with_silent(fields, SILENT), {**STATE_NAMES, "layer_types": "layers_block_type"})
    refuse_setting(fields, "use_long_context", "What it changes in the rotations differs between programs.")
    tied = fields.boolean("tie_word_embeddings", True)
    facts = read_facts(fields, positions=4096, ignored=("lm_head.weight",) if tied else ())
    hybrids = _hybrids(fields, facts.num_layers)
    blocks = fields.integer("num_mem_blocks", 1, 4096)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1))
    shared = _shared(fields, facts, norm)
    biased = fields.boolean("add_bias_linear", False)
    states = replace(
        read_mamba2(fields, facts.hidden_size, STATE_EPS),
        step_limit=(fields.number("time_step_min", 0.0, 1e3), math.inf),
        conv_bias=True,
        in_bias=biased,
        out_bias=biased,
    )
    apart = not tied and fields.value(HEAD_ALONE) is not True
    owners = {layer: layer if apart else hybrids[place % blocks] for place, layer in enumerate(hybrids)}
    copies = tuple((_block(layer), _block(owner)) for layer, owner in owners.items() if layer != owner)
    decoder = replace(decoder_of(facts, norm, tied), last_norm="model.final_layernorm")
    unread = (*(begin for begin, _ in copies), *(_other_adapters(hybrids, blocks) if apart else ()))
    facts = replace(facts, ignored=(*facts.ignored, *unread), copies=copies)
    return facts, _program(decoder, shared, states, owners)


def _block(layer: int) -> str:
    """Returns the beginning of the names of a layer's transformer block."""
    return f"model.layers.{layer}.shared_transformer."


def _other_adapters(hybrids: tuple[int, ...], blocks: int) -> Iterator[str]:
    """Yields the beginnings of the names of low-rank products that are stored and not used, in models whose layers
    share no block. There each layer has its own copy of a block, and the copy has the low-rank products of all layers
    that would share it."""
    lists = [f"self_attn.linear_{name}_adapter_list" for name in "qkv"] + ["feed_forward.gate_up_proj_adapter_list"]
    for own, layer in enumerate(hybrids):
        for use in range(own % blocks, len(hybrids), blocks):
            if use != own:
                yield from (f"{_block(layer)}{name}.{use}." for name in lists)


def _program(decoder: Decoder, shared: SharedBlock, states: Mamba2Shape, owners: dict[int, int]) -> ProgramText:
    """Returns the program. owners: for each layer with a shared block, the layer under whose names the block's tensors
    are stored."""
    uses = {layer: use for use, layer in enumerate(owners)}

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {decoder.embedding: decoder.vocab_size}, decoder.hidden_size)
        x = embed(table, t.token_ids, t)
        for index in range(decoder.num_layers):
            begin = f"{decoder.layers}.{index}."
            read = x
            if index in owners:
                with t.layer(_block(owners[index])):
                    made = shared(t, uses[index], x, table)
                read = linear(made, t.matrix("shared_out", {f"{begin}linear": x.width}, x.width))
                read, begin = add(read, x), f"{begin}mamba_decoder."
            with t.layer(begin):
                h = decoder.norm(t, "input_layernorm", read)
                with t.layer("mamba."):
                    x = add(x, mamba2_block(t, states, h))
        return head(t, decoder, x)

    return text


def _shared(fields: Fields, facts: CommonFacts, norm: Norm) -> SharedBlock:
    hidden, num_heads = facts.hidden_size, fields.integer("num_attention_heads", 1, 4096)
    if 2 * hidden % num_heads:
        raise fields.wrong("num_attention_heads", f"It must divide twice the hidden size, {2 * hidden}.")
    dim, few = 2 * hidden // num_heads, kv_heads(fields, num_heads, None)
    adapted = fields.boolean("use_shared_attention_adapter", False)
    if adapted and few != num_heads:
        raise fields.wrong("num_key_value_heads", f"With adapters of attention it must be the {num_heads} heads.")
    turned = fields.boolean("use_mem_rope", False)
    return SharedBlock(
        Heads(hidden, num_heads, few, dim, scale=(dim / 2) ** -0.5),
        fields.integer("intermediate_size", 1, 1 << 20, default=4 * hidden),
        activation(fields, "hidden_act", "gelu"),
        fields.boolean("add_bias_linear", False),
        fields.integer("adapter_rank", 1, 1 << 16),
        adapted,
        norm,
        rope_from_config(fields, dim, facts.max_positions) if turned else None,
    )


def _hybrids(fields: Fields, layers: int) -> tuple[int, ...]:
    """Returns the numbers of the layers with a transformer block."""
    kinds = fields.texts("layers_block_type")
    if not kinds and layers == SILENT["num_hidden_layers"]:
        return USUAL_HYBRIDS
    if len(kinds) != layers or any(kind not in KINDS for kind in kinds) or "hybrid" not in kinds:
        raise fields.wrong("layers_block_type", f"It must say {layers} times mamba or hybrid, hybrid at least once.")
    return tuple(index for index, kind in enumerate(kinds) if KINDS[kind])
