"""RWKV-7 "Goose": no attention (Peng et al. 2025). The state of a layer is one matrix for each head, and the row of the
token before, for the layer's two blocks.

The names of tensors are those of the conversions by flash-linear-attention. Each step removes from a head's matrix what
it holds in one direction; this direction is normed as in the published code, x / max(|x|, 1e-12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twostroke.models.common.blocks.decoder import Decoder, decoder_program
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import read_facts, refuse_setting, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import Tensor, Vector
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add, scale, soft_cap
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.token_shift import token_shift
from twostroke.ops.states.wkv import MOST_ROWS
from twostroke.ops.states.wkv7 import Wkv7Vectors, wkv7

SILENT = {
    **{"head_dim": 64, "decay_low_rank_dim": 64, "gate_low_rank_dim": 128, "a_low_rank_dim": 64},
    **{"v_low_rank_dim": 16, "norm_eps": 1e-5, "hidden_ratio": 4.0, "hidden_act": "sqrelu"},
}
WAYS = ("r", "w", "k", "v", "a", "g")
"""The mixtures of a row with the row before it: for r, w, k, v, a and g each."""


@dataclass(frozen=True, slots=True)
class Rwkv7Sizes:
    """The sizes of an RWKV-7 model. decay, rate, gate, value: the ranks of the low-rank products that make w, a, g, and
    the share of the first layer's values."""

    hidden_size: int
    head_dim: int
    inner_size: int
    decay: int
    rate: int
    gate: int
    value: int
    norm: Norm

    @property
    def heads(self) -> int:
        """The number of heads of each layer."""
        return self.hidden_size // self.head_dim


@architecture("RWKV7ForCausalLM", model_type="rwkv7")
def rwkv7(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads RWKV-7 "Goose". The values v of the first layer are mixed into those of the other layers. The first layer's
    own tensors for this mixing are not read."""
    fields = with_silent(fields, SILENT)
    refuse_setting(fields, "attn", "Layers of attention among those of RWKV are not implemented.")
    for name, wanted in (("norm_first", True), ("norm_bias", True), ("tie_word_embeddings", False)):
        if fields.boolean(name, wanted) is not wanted:
            raise fields.wrong(name, f"Published models of this family have {str(wanted).lower()}.")
    if fields.text("hidden_act", "") not in ("sqrelu", "relu2"):
        raise fields.wrong("hidden_act", "Blocks of this family have the squared relu.")
    facts = read_facts(fields, positions=1 << 20, ignored=("model.layers.0.attn.v_lora.",))
    shape = _shape(fields, facts.hidden_size)
    decoder = Decoder(
        *(facts.vocab_size, facts.hidden_size, facts.num_layers, shape.norm, False),
        embedding="model.embeddings",
    )

    def text(t: Tracer) -> Value:
        first: list[Value] = []

        def layer(t: Tracer, index: int, x: Value) -> Value:
            x = x if index else shape.norm(t, "pre_norm", x, in_place=True)
            made, values = _time_mix(t, shape, shape.norm(t, "attn_norm", x), first[0] if first else None)
            first.append(values)
            x = add(x, made)
            return add(x, _channel_mix(t, shape, shape.norm(t, "ffn_norm", x)))

        return decoder_program(decoder, layer)(t)

    return facts, text


def _shape(fields: Fields, hidden: int) -> Rwkv7Sizes:
    dim = fields.integer("head_dim", 1, MOST_ROWS)
    if hidden % dim:
        raise fields.wrong("head_dim", f"It must divide hidden_size, {hidden}.")
    inner = fields.optional_integer("intermediate_size", 1, 1 << 20)
    decay, rate, gate, value = (
        fields.integer(f"{name}_low_rank_dim", 1, 1 << 16) for name in ("decay", "a", "gate", "v")
    )
    norm = Norm(fields.number("norm_eps", 1e-12, 0.1), NormKind.LAYER)
    wide = inner or int(hidden * fields.number("hidden_ratio", 0.1, 64.0))
    return Rwkv7Sizes(hidden, dim, wide, decay, rate, gate, value, norm)


def _time_mix(t: Tracer, shape: Rwkv7Sizes, h: Value, first: Value | None) -> tuple[Value, Value]:
    """Returns the block's output for the normed rows h, and the block's values v. first: the values v of the first
    layer, which are mixed into those of this layer; None in the first layer."""
    width, heads = shape.hidden_size, shape.heads
    mix = t.vector_of(tuple(Tensor(t.name(f"attn.x_{way}"), (1, 1, width)) for way in WAYS), len(WAYS) * width)
    mixed = dict(zip(WAYS, token_shift(h, mix), strict=True))
    r, k, v = (linear(mixed[way], t.matrix(way, {f"attn.{way}_proj": width}, width)) for way in "rkv")
    w = _small(t, "w", mixed["w"], shape.decay, width, lambda low: soft_cap(low, 1.0))
    a = _small(t, "a", mixed["a"], shape.rate, width)
    g = _small(t, "g", mixed["g"], shape.gate, width, lambda low: activate(low, Activation.SIGMOID), biased=False)
    if first is not None:
        share = _small(t, "v", mixed["v"], shape.value, width)
        apart = add(scale(take_columns(v, _identity(t, width)), -1.0), first)
        v = add(v, multiply(apart, share, Activation.SIGMOID))
    vectors = Wkv7Vectors(
        t.vector("attn.k_k", width, suffix=""),
        t.vector("attn.k_a", width, suffix=""),
        t.vector_of((Tensor(t.name("attn.r_k"), (heads, shape.head_dim)),), width),
        t.vector("attn.g_norm", width),
        t.vector("attn.g_norm", width, suffix=".bias"),
    )
    r, w, k, values, a = (each.heads(heads) for each in (r, w, k, v, a))
    seen = wkv7(r, w, k, values, a, vectors, shape.head_dim * shape.norm.eps)
    out = linear(multiply(seen, g), t.matrix("o", {"attn.o_proj": width}, width))
    return out, values.flat()


def _small(
    t: Tracer,
    name: str,
    h: Value,
    rank: int,
    width: int,
    middle: Callable[[Value], Value] | None = None,
    *,
    biased: bool = True,
) -> Value:
    """Applies a low-rank product: a matrix with `rank` outputs, the function `middle`, and a matrix with `width`
    outputs."""
    low = linear(h, t.matrix("low", {f"attn.{name}_lora.lora.0": rank}, width))
    low = low if middle is None else middle(low)
    return linear(low, t.matrix("high", {f"attn.{name}_lora.lora.2": width}, rank, bias=biased))


def _channel_mix(t: Tracer, shape: Rwkv7Sizes, h: Value) -> Value:
    (mixed,) = token_shift(h, t.vector("ffn.x_k", shape.hidden_size, suffix=""))
    up = linear(mixed, t.matrix("up", {"ffn.key": shape.inner_size}, shape.hidden_size))
    middle = activate(up, Activation.RELU2)
    return linear(middle, t.matrix("down", {"ffn.value": shape.hidden_size}, shape.inner_size))


def _identity(t: Tracer, width: int) -> Vector:
    return t.constant("order", tuple(float(column) for column in range(width)))
