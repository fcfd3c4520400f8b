"""RecurrentGemma: two layers with a recurrent unit, then one of attention in a window (De et al. 2024, Griffin).

A recurrent block is a short convolution and an RG-LRU, whose two gates have a product for each head. The block's output
is multiplied by gelu of another product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import AttentionNames, attend
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.states.mamba2 import conv_taps
from twostroke.models.common.fields.fields import rounded_to
from twostroke.models.common.fields.read import Parts, read_parts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.head_linear import head_linear
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import Tensor
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.rg_lru import rg_lru
from twostroke.ops.states.short_conv import short_conv
from twostroke.types.spec.rope import MAX_POSITIONS

SILENT = {**defaults("recurrent_gemma"), "max_position_embeddings": 8192}
"""The defaults for fields that config.json does not have. The family's configs give no longest sequence; its models
were trained on 8,192 tokens."""
ATTENTION = "attention"
NAMES = AttentionNames("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True, slots=True)
class RecurrentBlock:
    """A block of two branches, whose results are multiplied: one is a short convolution and an RG-LRU, the other a
    product and `activation`. width: channels of the recurrence, shared evenly by the heads of its gates. taps: how many
    positions the convolution reads."""

    hidden_size: int
    width: int
    heads: int
    taps: int
    activation: Activation

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the block's output for the normed rows h."""
        into = {"linear_x": self.width, "linear_y": self.width}
        x, y = linear(h, t.matrix("states_in", into, self.hidden_size, bias=True)).split(self.width, self.width)
        bias = t.vector("conv_1d", self.width, suffix=".bias")
        x = short_conv(x, conv_taps(t, "conv_1d", self.width, self.taps), bias)
        with t.layer("rg_lru."):
            arriving, recurrent = self._gate(t, "input_gate", x), self._gate(t, "recurrent_gate", x)
            made = rg_lru(x, arriving, recurrent, t.vector("recurrent_param", self.width, suffix=""))
        out = t.matrix("states_out", {"linear_out": self.hidden_size}, self.width, bias=True)
        return linear(multiply(made, y, self.activation), out)

    def _gate(self, t: Tracer, name: str, x: Value) -> Value:
        """Multiplies each head's channels by a matrix of its own, stored as (heads, columns, rows)."""
        heads, size = self.heads, self.width // self.heads
        stored = (heads, size, size)
        parts = tuple(Tensor(t.name(f"{name}_weight"), stored, True, matrix=head) for head in range(heads))
        biases = tuple(Tensor(t.name(f"{name}_bias"), stored[:2], matrix=head) for head in range(heads))
        return head_linear(x.heads(heads), t.weight("states_gate", size, size, parts, biases, experts=heads))


@architecture("RecurrentGemmaForCausalLM", model_type="recurrent_gemma")
def recurrent_gemma(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads RecurrentGemma. block_types is a list of recurrent and attention, which is repeated over the layers.
    intermediate_size counts the outputs of gate and up together."""
    parts = read_parts(fields, SILENT, plus=1.0, act=("hidden_activation", "gelu_pytorch_tanh"))
    fields, facts, norm = parts.fields, parts.facts, parts.norm
    if not fields.boolean("embeddings_scale_by_sqrt_dim", True):
        raise fields.wrong("embeddings_scale_by_sqrt_dim", "transformers scales embeddings whatever it says.")
    window = fields.integer("attention_window_size", 1, MAX_POSITIONS)
    turn = parts.rope(partial=0.5)
    biased = fields.boolean("attention_bias", False)
    heads = replace(parts.heads, qkv_bias=biased, output_bias=True, names=NAMES)
    gate, up, down = (f"mlp_block.{name}_proj" for name in ("gate", "up", "down"))
    feed = replace(parts.feed, inner_size=parts.feed.inner_size // 2, bias=True, gate=gate, up=up, down=down)
    recurrent = _recurrent(parts)
    kinds = fields.texts("block_types")
    if not kinds or any(kind not in ("recurrent", ATTENTION) for kind in kinds):
        raise fields.wrong("block_types", "It must be a list of recurrent and attention.")

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "temporal_pre_norm", x)
        with t.layer("temporal_block."):
            attends = kinds[index % len(kinds)] == ATTENTION
            made = attend(t, heads, h, window=window, turn=turn) if attends else recurrent(t, h)
        x = add(x, made)
        return add(x, feed(t, norm(t, "channel_pre_norm", x)))

    decoder = replace(
        parts.decoder,
        # transformers keeps the factor in bfloat16, whatever type the weights have.
        embedding_scale=rounded_to("bfloat16", facts.hidden_size**0.5),
        soft_cap=fields.number("logits_soft_cap", 1e-3, 1e6),
        last_norm="model.final_norm",
    )
    return facts, decoder_program(decoder, layer)


def _recurrent(parts: Parts) -> RecurrentBlock:
    fields, hidden, heads = parts.fields, parts.facts.hidden_size, parts.heads.num_heads
    width = fields.optional_integer("lru_width", 1, 1 << 17) or hidden
    if width % heads:
        raise fields.wrong("lru_width", f"It must be a multiple of the {heads} heads.")
    return RecurrentBlock(hidden, width, heads, fields.integer("conv1d_width", 2, 64), parts.feed.activation)
