"""Zamba: Mamba in every layer, and before some of them one transformer block that they share (Glorioso et al. 2024).

The shared block reads each row's residual joined with its embedding. Its output is not added to the residual. A layer
multiplies this output by a matrix of its own, and adds it to the input of its Mamba block. The scan of a Mamba block is
divided into heads, and each head has products of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.decoder import decoder_of, head
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.models.common.fields.fields import activation, kv_heads, read_facts, with_silent
from twostroke.models.common.fields.mixture import named_feed
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.models.states.zamba2 import beside_embedding
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import SEQUENCES, STATE_SLOTS, HeadRows, Tensor, VectorForm, Weight, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.selective_scan import SelectiveScan
from twostroke.ops.states.short_conv import short_conv

KINDS = {"hybrid": True, "mamba": False, "linear_attention": False}
ALWAYS = (False, False, True)
"""For each of the first layers, whether it has the shared block, where the config does not list layers."""


@dataclass(frozen=True, slots=True)
class MambaHeads:
    """A Mamba block of several heads, each with scan parameters of its own. inner: the channels of all heads. numbers:
    the size of each channel's state. rank: the rank of the product that computes dt, the scan's step sizes."""

    hidden_size: int
    inner: int
    heads: int
    numbers: int
    rank: int
    taps: int
    conv_bias: bool
    bias: bool

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the normed rows h. Values and gates lie side by side in its first product."""
        inner = self.inner
        apart = {"in_proj": HeadRows(1, 2 * inner, 2 * inner, pairs=inner)}
        into = t.matrix("states_in", {"in_proj": 2 * inner}, self.hidden_size, bias=self.bias, orders=apart)
        values, gate = linear(h, into).split(inner, inner)
        bias = t.vector("conv1d", inner, suffix=".bias") if self.conv_bias else None
        values = short_conv(values, conv_taps(t, "conv1d", inner, self.taps), bias, Activation.SILU)
        each = [inner // self.heads] * self.heads
        scanned = values.fresh().split(*each)
        for index, (x, out) in enumerate(zip(values.split(*each), scanned, strict=True)):
            self._scan(t, index, x, out)
        last = t.matrix("states_out", {"out_proj": self.hidden_size}, inner, bias=self.bias)
        return linear(multiply(join(*scanned), gate, Activation.SILU), last)

    def _scan(self, t: Tracer, index: int, x: Value, out: Value) -> None:
        """Computes dt, B and C of head number `index` from its channels x, runs its selective scan, and writes the
        result into `out`."""
        heads, width, numbers, rank = self.heads, x.width, self.numbers, self.rank

        def product(name: str, rows: int, columns: int, bias: str = "") -> Weight:
            part = Tensor(t.name(f"{name}_weight"), (heads, rows, columns), matrix=index)
            biases = (Tensor(t.name(f"{name}_bias"), (heads, rows), matrix=index),) if bias else ()
            return t.weight("states_steps", rows, columns, (part,), biases)

        few, b, c = linear(x, product("x_proj", rank + 2 * numbers, width)).split(rank, numbers, numbers)
        dt = linear(few, product("dt_proj", width, rank, bias="dt_proj"))
        logs = Tensor(t.name("A_log"), (heads, width, numbers), True, matrix=index)
        decay = t.vector_of((logs,), width * numbers, form=VectorForm.NEGATED_EXP)
        skip = t.vector_of((Tensor(t.name("D"), (heads, width), matrix=index),), width)
        state = t.state(width * numbers)
        t.record(SelectiveScan(out, x, dt, b, c, decay, skip, state, STATE_SLOTS, SEQUENCES))


@architecture("ZambaForCausalLM", model_type="zamba")
def zamba(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Zamba. layers_block_type has mamba or hybrid for each layer. Where it is absent, attn_layer_period and
    attn_layer_offset decide."""
    fields = with_silent(fields, defaults("zamba"))
    if not fields.boolean("tie_word_embeddings", True):
        raise fields.wrong("tie_word_embeddings", "Without a tied head, transformers ties no shared blocks either.")
    facts = read_facts(fields, positions=4096, ignored=("lm_head.weight",))
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1))
    shared = _shared_heads(fields, facts.hidden_size)
    feed = named_feed(facts.hidden_size, fields.integer("intermediate_size", 1, 1 << 20), "feed_forward")
    feed = replace(feed, activation=activation(fields, "hidden_act", "gelu"))
    states, hybrids = _states(fields, facts.hidden_size), _hybrids(fields, facts.num_layers)
    blocks = [f"model.layers.{index}.shared_transf." for index, hybrid in enumerate(hybrids) if hybrid]

    def made(t: Tracer, x: Value, table: Weight) -> Value:
        """Returns the output of the block that layers share. x: the residual. table: the embedding matrix."""
        h = norm(t, "input_layernorm", beside_embedding(t, x, table))
        return feed(t, norm(t, "pre_ff_layernorm", attend(t, shared, h), in_place=True))

    decoder = replace(decoder_of(facts, norm, True), last_norm="model.final_layernorm")

    def text(t: Tracer) -> Value:
        table = t.matrix("embedding", {decoder.embedding: decoder.vocab_size}, decoder.hidden_size)
        x = embed(table, t.token_ids, t)
        for index in range(decoder.num_layers):
            begin, read = f"{decoder.layers}.{index}.", x
            if hybrids[index]:
                with t.layer(blocks[0]):
                    block = made(t, x, table)
                read = add(linear(block, t.matrix("shared_out", {f"{begin}linear": x.width}, x.width)), x)
                begin = f"{begin}mamba_decoder."
            with t.layer(begin):
                h = norm(t, "input_layernorm", read)
                with t.layer("mamba."):
                    x = add(x, states(t, h))
        return head(t, decoder, x)

    copies = tuple((block, blocks[0]) for block in blocks[1:])
    return replace(facts, ignored=(*facts.ignored, *blocks[1:]), copies=copies), text


def _shared_heads(fields: Fields, hidden: int) -> Heads:
    """Reads the heads of the shared block, which read twice the hidden size."""
    num_heads = fields.integer("num_attention_heads", 1, 4096)
    if (fields.optional_integer("attention_hidden_size", 1, 1 << 20) or 2 * hidden) != 2 * hidden:
        raise fields.wrong("attention_hidden_size", f"The block reads twice the hidden size, {2 * hidden}.")
    dim = fields.optional_integer("attention_head_dim", 1, 4096) or 2 * hidden // num_heads

    def joined(t: Tracer, shape: Heads) -> Weight:
        outputs = {shape.names.q: shape.query, shape.names.k: shape.kv, shape.names.v: shape.kv}
        return t.matrix("qkv", outputs, 2 * hidden)

    return Heads(hidden, num_heads, kv_heads(fields, num_heads, None), dim, scale=(dim / 2) ** -0.5, joined=joined)


def _states(fields: Fields, hidden: int) -> MambaHeads:
    if fields.text("hidden_mamba_act", "silu") not in ("silu", "swish"):
        raise fields.wrong("hidden_mamba_act", "The block's activation is silu.")
    inner, heads = fields.integer("mamba_expand", 1, 64, default=2) * hidden, fields.integer("n_mamba_heads", 1, 4096)
    if inner % heads:
        raise fields.wrong("n_mamba_heads", f"It must divide the {inner} channels of the scan.")
    auto = fields.values.get("mamba_dt_rank") in (None, "auto")
    return MambaHeads(
        *(hidden, inner, heads, fields.integer("mamba_d_state", 1, 4096, default=16)),
        math.ceil(hidden / 16) if auto else fields.integer("mamba_dt_rank", 1, 1 << 16),
        fields.integer("mamba_d_conv", 2, 64, default=4),
        fields.boolean("mamba_conv_bias", True),
        fields.boolean("mamba_proj_bias", False),
    )


def _hybrids(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Returns for each layer whether it has the shared block."""
    name = "layers_block_type" if fields.has("layers_block_type") else "layer_types"
    kinds = fields.texts(name)
    if not kinds:
        period = fields.integer("attn_layer_period", 1, 4096)
        offset = fields.integer("attn_layer_offset", 0, 4096)
        usual = (*ALWAYS, *(index % period == offset for index in range(layers - len(ALWAYS))))[:layers]
    else:
        if len(kinds) != layers or any(kind not in KINDS for kind in kinds):
            raise fields.wrong(name, f"It must say {layers} times mamba or hybrid.")
        usual = tuple(KINDS[kind] for kind in kinds)
    if True not in usual:
        raise fields.wrong(name, "At least one layer must be hybrid.")
    return usual
