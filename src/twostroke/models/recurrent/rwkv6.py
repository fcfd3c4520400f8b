"""RWKV-6 "Finch": token shift with a mixing ratio that depends on the data (Peng et al. 2024).

The names of tensors are those of the published conversions for transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.norm import Norm, NormKind
from twostroke.models.common.fields.fields import read_facts, with_silent
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.models.recurrent.rwkv4 import rwkv_decoder
from twostroke.ops.products.linear import linear
from twostroke.ops.products.take_columns import take_columns
from twostroke.ops.program.values import HeadRows, Tensor
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add, scale, soft_cap
from twostroke.ops.rows.multiply import multiply
from twostroke.ops.states.token_shift import token_shift
from twostroke.ops.states.wkv import MOST_ROWS
from twostroke.ops.states.wkv6 import Wkv6Vectors, wkv6

SILENT = {"head_size": 64, "head_size_divisor": 8, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False}
WAYS = ("w", "k", "v", "r", "g")
"""The five mixtures of a row with the row before it (for decay, key, value, receptance and gate), in the order of
time_maa_w2."""
LARGE = 4096
"""The hidden size at which the low-rank products of mixing and decay have twice the rank."""


@dataclass(frozen=True, slots=True)
class Rwkv6Sizes:
    """The sizes of an RWKV-6 model. mixing, decay: the ranks of the low-rank products that make a row's mixing ratios
    and its decays. head_eps: the epsilon of the norm of each head's output."""

    hidden_size: int
    head_size: int
    inner_size: int
    mixing: int
    decay: int
    norm: Norm
    head_eps: float


@architecture("Rwkv6ForCausalLM", model_type="rwkv6")
def rwkv6(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads RWKV-6. rescale_every is ignored: it only keeps float16 in range, and changes no result here."""
    fields = with_silent(fields, SILENT)
    if fields.boolean("tie_word_embeddings", False):
        raise fields.wrong("tie_word_embeddings", "Published models of this family have a head of their own.")
    facts = read_facts(fields, positions=1 << 20, longest="context_length")
    shape = _shape(fields, facts.hidden_size)
    decoder = rwkv_decoder(facts, shape.norm, False)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        x = x if index else shape.norm(t, "pre_ln", x, in_place=True)
        x = add(x, _time_mix(t, shape, shape.norm(t, "ln1", x)))
        return add(x, _channel_mix(t, shape, shape.norm(t, "ln2", x)))

    return facts, decoder_program(decoder, layer)


def _shape(fields: Fields, hidden: int) -> Rwkv6Sizes:
    size = fields.integer("head_size", 1, MOST_ROWS)
    if hidden % size or fields.integer("attention_hidden_size", 1, 1 << 20, default=hidden) != hidden:
        raise fields.wrong("head_size", f"The heads together must have hidden_size, {hidden}, elements.")
    inner = fields.optional_integer("intermediate_size", 1, 1 << 20) or int(hidden * 3.5) // 32 * 32
    norm = Norm(fields.number("layer_norm_epsilon", 1e-12, 0.1), NormKind.LAYER)
    eps = norm.eps * fields.number("head_size_divisor", 1e-3, 1e3) ** 2
    mixing, decay = (64, 128) if hidden == LARGE else (32, 64)
    return Rwkv6Sizes(hidden, size, inner, mixing, decay, norm, eps)


def _time_mix(t: Tracer, shape: Rwkv6Sizes, h: Value) -> Value:
    width, rank = shape.hidden_size, shape.mixing
    names = tuple(f"attention.time_maa_{way}" for way in ("x", *WAYS))
    whole = t.vector_of(tuple(Tensor(t.name(name), (1, 1, width)) for name in names), len(names) * width)
    mixed, *shifted = token_shift(h, whole)
    (before,) = token_shift(h, t.constant("ones", (1.0,) * width))
    order = t.constant("order", tuple(float(column) for column in range(width)))
    apart = add(scale(take_columns(h, order), -1.0), before)
    low = Tensor(t.name("attention.time_maa_w1"), (width, 5 * rank), True)
    smalls = soft_cap(linear(mixed, t.weight("low", 5 * rank, width, (low,))), 1.0).split(*(rank,) * 5)
    rows = {}
    for index, way in enumerate(WAYS):
        high = Tensor(t.name("attention.time_maa_w2"), (5, rank, width), True, matrix=index)
        share = linear(smalls[index], t.weight(f"high_{way}", width, rank, (high,)))
        rows[way] = add(shifted[index], multiply(apart, share))
    r, k, v, g = (
        linear(rows[way], t.matrix(way, {f"attention.{name}": width}, width))
        for way, name in (("r", "receptance"), ("k", "key"), ("v", "value"), ("g", "gate"))
    )
    heads = width // shape.head_size
    vectors = Wkv6Vectors(
        t.vector_of((Tensor(t.name("attention.time_faaaa"), (heads, shape.head_size)),), width),
        t.vector("attention.ln_x", width),
        t.vector("attention.ln_x", width, suffix=".bias"),
    )
    decays = _decays(t, shape, rows["w"])
    r, decays, k, v = (each.heads(heads) for each in (r, decays, k, v))
    seen = wkv6(r, decays, k, v, vectors, shape.head_eps)
    return linear(multiply(seen, g, Activation.SILU), t.matrix("o", {"attention.output": width}, width))


def _decays(t: Tracer, shape: Rwkv6Sizes, h: Value) -> Value:
    width, rank = shape.hidden_size, shape.decay
    low = Tensor(t.name("attention.time_decay_w1"), (width, rank), True)
    high = Tensor(t.name("attention.time_decay_w2"), (rank, width), True)
    bias = Tensor(t.name("attention.time_decay"), (1, 1, width), order=HeadRows(1, width, width))
    small = soft_cap(linear(h, t.weight("low", rank, width, (low,))), 1.0)
    return linear(small, t.weight("high", width, rank, (high,), (bias,)))


def _channel_mix(t: Tracer, shape: Rwkv6Sizes, h: Value) -> Value:
    width, inner = shape.hidden_size, shape.inner_size
    names = tuple(Tensor(t.name(f"feed_forward.time_maa_{way}"), (1, 1, width)) for way in "kr")
    k, r = token_shift(h, t.vector_of(names, 2 * width))
    middle = activate(linear(k, t.matrix("up", {"feed_forward.key": inner}, width)), Activation.RELU2)
    made = linear(middle, t.matrix("down", {"feed_forward.value": width}, inner))
    share = linear(r, t.matrix("r", {"feed_forward.receptance": width}, width))
    return multiply(made, share, Activation.SIGMOID)
