"""An EAGLE layer: one decoder layer that guesses the model's next hidden state (Li et al. 2024).

    x = fc([E(token t + 1); h_t]); x = x + attention(x); x = x + feed_forward(norm(x)); the hidden state at t + 1 is x

h is behind the model's last norm, or the layer's own answer where it guesses on. E and the output matrix are those of
the model.
The layer has no norm before its attention. Tensors are named as in the published checkpoints: fc.weight, fc.bias,
layers.0.self_attn.q_proj.weight and so on.

Knows: config.json of the layer, its program.
Must not know: which model it belongs to beyond its sizes, its embedding and its output matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.attend import Heads, attend
from twostroke.models.common.feed import Feed
from twostroke.models.common.fields import head_dim, kv_heads, silu_only
from twostroke.models.common.norm import Norm
from twostroke.ops.add import add
from twostroke.ops.embed import Embed
from twostroke.ops.gather_rows import gather_rows
from twostroke.ops.linear import linear
from twostroke.ops.patterns import PATTERNS
from twostroke.program.check import check
from twostroke.program.fuse import fuse
from twostroke.program.program import Program
from twostroke.program.trace import Tracer
from twostroke.program.values import Value, Weight, join
from twostroke.spec.fields import Fields
from twostroke.spec.rope import rope_from_config

LAYER = "layers.0."


@dataclass(frozen=True, eq=False, slots=True)
class EagleProgram:
    """inputs: (T, 2 D), whose second half, the hidden states, is filled before each call; the embedding is written into
    the first. own: (R, D), the hidden states of the next positions. shared: the model's matrices."""

    plain: Program
    program: Program
    inputs: Value
    own: Value
    shared: tuple[Weight, ...]


def eagle_program(fields: Fields, hidden_size: int, positions: int, embedding: Weight, matrix: Weight) -> EagleProgram:
    """positions: the longest text of the model. Raises CorruptModel or UnsupportedModel naming the field."""
    silu_only(fields)
    if fields.integer("hidden_size", 2, 1 << 17) != hidden_size:
        raise fields.wrong("hidden_size", f"the model's hidden states have {hidden_size:,} numbers")
    if fields.integer("vocab_size", 1, 1 << 24) != matrix.rows:
        raise fields.wrong("vocab_size", f"the model has {matrix.rows:,} tokens")
    if fields.integer("num_hidden_layers", 1, 4096, default=1) != 1:
        raise fields.wrong("num_hidden_layers", "an EAGLE layer is one layer")
    num_heads = fields.integer("num_attention_heads", 1, 4096)
    dim = head_dim(fields, hidden_size, num_heads, None)
    biased = fields.boolean("attention_bias", False)
    heads = Heads(hidden_size, num_heads, kv_heads(fields, num_heads, None), dim, qkv_bias=biased, output_bias=biased)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1, default=1e-6))
    feed = Feed(hidden_size, fields.integer("intermediate_size", 1, 1 << 20))
    turn = rope_from_config(fields, dim, positions)

    t = Tracer()
    inputs = t.given(2 * hidden_size)
    word, state = inputs.split(hidden_size, hidden_size)
    t.record(Embed(word, embedding, t.token_ids))
    joined = t.matrix("eagle", {"fc": hidden_size}, 2 * hidden_size, bias=fields.boolean("bias", True))
    x = linear(join(word, state), joined)
    with t.layer(LAYER):
        x = add(x, attend(t, heads, x, turn=turn))
        x = add(x, feed(t, norm(t, "post_attention_layernorm", x)))
    own = gather_rows(x, t.logit_rows)
    plain = t.program(linear(own, matrix), kept=(own,))
    program = fuse(plain, PATTERNS)
    check(program)
    return EagleProgram(plain, program, inputs, own, tuple(dict.fromkeys((embedding, matrix))))
