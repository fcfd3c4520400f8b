"""An EAGLE-3 layer: one decoder layer over the hidden states after three of the model's layers (Li et al. 2025).

    s = fc([h of three layers]); after the first guess, s is the layer's own x instead
    x = s + attention([norm(E(token t + 1)); norm(s)]); x = x + feed_forward(norm(x)); logits: M norm(x)

x is the hidden state at t + 1. E is the model's embedding. M is the layer's own and may have fewer tokens than the
model: its token i is the model's token i + d2t[i]. Tensors are named as in the published checkpoints: fc.weight,
midlayer.self_attn.q_proj.weight, norm.weight, lm_head.weight, d2t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import AttentionNames, Heads, attend
from twostroke.models.common.blocks.heads.ahead import AheadProgram, ahead_program
from twostroke.models.common.blocks.heads.eagle import eagle_layer
from twostroke.ops.products.embed import Embed
from twostroke.ops.products.linear import Linear, linear
from twostroke.ops.program.op import Op
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Weight, join
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.rms_norm import RmsNorm
from twostroke.types.spec.fields import Fields

LAYER = "midlayer."
PLACES = 3
IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, eq=False, slots=True)
class Eagle3Program:
    """A traced EAGLE-3 layer. made: the program of the decoder layer and its head. enter: the product fc, which reads
    the hidden states of three layers of the model. joined: the weight of `enter`. vocabulary: the number of tokens of
    the EAGLE-3 layer's own head."""

    made: AheadProgram
    enter: Op
    joined: Weight
    vocabulary: int


def eagle3_places(fields: Fields, num_layers: int) -> tuple[int, ...]:
    """Returns the three layers of the model whose inputs the EAGLE-3 layer reads. Raises CorruptModel, which names the
    field."""
    group = fields.group("eagle_config")
    said = group.integers(IDS) if group is not None and group.has(IDS) else fields.integers(IDS)
    places = tuple(said) or (2, num_layers // 2, num_layers - 3)
    if len(set(places)) != PLACES or min(places) < 0 or max(places) >= num_layers:
        raise fields.wrong(IDS, f"Three different layers of the model's {num_layers} are read, not {list(places)}.")
    return places


def eagle3_program(fields: Fields, hidden_size: int, positions: int, embedding: Weight) -> Eagle3Program:
    """Reads an EAGLE-3 layer and returns its program. positions: the longest sequence of the model. Raises CorruptModel
    or UnsupportedModel, which name the field."""
    parts = eagle_layer(fields, hidden_size, positions, embedding.rows)
    vocabulary = fields.integer("draft_vocab_size", 1, embedding.rows, default=embedding.rows)
    heads, norm = replace(parts.heads, joined=_joined_wide), parts.norm

    t = Tracer()
    states = t.given(hidden_size)
    word = states.fresh()
    t.record(Embed(word, embedding, t.token_ids))
    both = states.fresh(2 * hidden_size)
    halves = both.split(hidden_size, hidden_size)
    with t.layer(LAYER):
        for half, x, name in zip(halves, (word, states), ("input_layernorm", "hidden_norm"), strict=True):
            t.record(RmsNorm(half, x, t.vector(name, hidden_size), norm.eps))
        x = add(states, attend(t, heads, join(*halves), turn=parts.turn))
        x = add(x, parts.feed(t, norm(t, "post_attention_layernorm", x)))
    own = gather_rows(x, t.logit_rows)
    logits = linear(norm(t, "norm", own), t.matrix("head", {"lm_head": vocabulary}, hidden_size))
    made = ahead_program(t.program(logits, kept=(own,)), states, own, (embedding,))
    outer = Tracer()
    joined = outer.matrix("eagle", {"fc": hidden_size}, PLACES * hidden_size, bias=fields.boolean("bias", False))
    three = outer.given(PLACES * hidden_size)
    return Eagle3Program(made, Linear(three.fresh(hidden_size), three, joined), joined, vocabulary)


def _joined_wide(t: Tracer, shape: Heads) -> Weight:
    """Returns the matrix of q, k and v for rows of twice the hidden size."""
    names: AttentionNames = shape.names
    outputs = {names.q: shape.query, names.k: shape.kv, names.v: shape.kv}
    return t.matrix("qkv", outputs, 2 * shape.hidden_size, bias=shape.qkv_bias)
