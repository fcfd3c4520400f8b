"""An EAGLE layer: one decoder layer that guesses the model's next hidden state (Li et al. 2024).

    x = fc([E(token t + 1); h_t]); x = x + attention(x); x = x + feed_forward(norm(x)); the hidden state at t + 1 is x

h is the hidden state after the model's last norm; after the first guess, it is the layer's own result. E and the output
matrix are those of the model. The layer has no norm before its attention. Tensors are named as in the published
checkpoints: fc.weight, fc.bias, layers.0.self_attn.q_proj.weight and so on.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.feed import Feed
from twostroke.models.common.blocks.heads.ahead import AheadProgram, ahead_program
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.fields.fields import head_dim, kv_heads, silu_only
from twostroke.ops.products.embed import Embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Weight, join
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import RopeSpec, rope_from_config

LAYER = "layers.0."


@dataclass(frozen=True, slots=True)
class EagleLayer:
    """The parts that a layer of EAGLE and one of EAGLE-3 have in common."""

    heads: Heads
    norm: Norm
    feed: Feed
    turn: RopeSpec


def eagle_layer(fields: Fields, hidden_size: int, positions: int, vocab_size: int) -> EagleLayer:
    """Reads the EAGLE layer for this hidden size and vocabulary. Raises CorruptModel or UnsupportedModel, which name
    the field."""
    silu_only(fields)
    if fields.integer("hidden_size", 2, 1 << 17) != hidden_size:
        raise fields.wrong("hidden_size", f"the model's hidden states have {hidden_size:,} numbers")
    if fields.integer("vocab_size", 1, 1 << 24) != vocab_size:
        raise fields.wrong("vocab_size", f"the model has {vocab_size:,} tokens")
    num_heads, biased = fields.integer("num_attention_heads", 1, 4096), fields.boolean("attention_bias", False)
    dim = head_dim(fields, hidden_size, num_heads, None)
    return EagleLayer(
        Heads(hidden_size, num_heads, kv_heads(fields, num_heads, None), dim, qkv_bias=biased, output_bias=biased),
        Norm(fields.number("rms_norm_eps", 1e-12, 0.1, default=1e-6)),
        Feed(hidden_size, fields.integer("intermediate_size", 1, 1 << 20)),
        rope_from_config(fields, dim, positions),
    )


def eagle_program(fields: Fields, hidden_size: int, positions: int, embedding: Weight, matrix: Weight) -> AheadProgram:
    """Reads an EAGLE layer and returns its program. positions: the longest sequence of the model. Raises CorruptModel
    or UnsupportedModel, which name the field."""
    parts = eagle_layer(fields, hidden_size, positions, matrix.rows)
    if fields.integer("num_hidden_layers", 1, 4096, default=1) != 1:
        raise fields.wrong("num_hidden_layers", "an EAGLE layer is one layer")

    t = Tracer()
    inputs = t.given(2 * hidden_size)
    word, state = inputs.split(hidden_size, hidden_size)
    t.record(Embed(word, embedding, t.token_ids))
    joined = t.matrix("eagle", {"fc": hidden_size}, 2 * hidden_size, bias=fields.boolean("bias", True))
    x = linear(join(word, state), joined)
    with t.layer(LAYER):
        x = add(x, attend(t, parts.heads, x, turn=parts.turn))
        x = add(x, parts.feed(t, parts.norm(t, "post_attention_layernorm", x)))
    own = gather_rows(x, t.logit_rows)
    return ahead_program(t.program(linear(own, matrix), kept=(own,)), state, own, (embedding, matrix))
