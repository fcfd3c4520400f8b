"""GPT-2: layer norms, learned positions, biases everywhere, matrices stored as (inputs, outputs) (Radford et al.
2019)."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.models.common.fields.fields import activation, read_facts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture
from twostroke.ops.attention.attention import attention
from twostroke.ops.attention.kv_write import kv_write
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.values import PagedKV
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.layer_norm import layer_norm
from twostroke.types.errors import CorruptModel, UnsupportedModel

PREFIX = "transformer."
"""The beginning of the names of all tensors except the head's. Published files leave it out; files that transformers
saves have it."""

SAME_FIELDS = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
"""Usual names, each with the name in GPT-2's config that means the same; transformers reads both."""

SILENT = {"n_positions": 1024, "bos_token_id": 50256, "eos_token_id": 50256}
"""The defaults of transformers for fields that config.json does not have."""


@dataclass(frozen=True, slots=True)
class Gpt2Shape:
    """The shape of a model. scales: the factors of the attention scores, one for each layer."""

    vocab_size: int
    hidden_size: int
    num_heads: int
    positions: int
    inner_size: int
    eps: float
    activation: Activation
    scales: tuple[float, ...]
    tied: bool


@architecture("GPT2LMHeadModel", model_type="gpt2")
def gpt2(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads GPT-2. reorder_and_upcast_attn, which asks for scores in float32, is ignored, because scores are always
    float32 here."""
    fields = _own_names(fields)
    tied = fields.boolean("tie_word_embeddings", True)
    facts = read_facts(
        fields,
        positions=SILENT["n_positions"],
        hidden="n_embd",
        layers="n_layer",
        longest="n_positions",
        ignored=("lm_head.weight",) if tied else (),
        optional_prefix=PREFIX,
    )
    num_heads = fields.integer("n_head", 1, 4096)
    if facts.hidden_size % num_heads:
        raise fields.wrong("n_embd", f"It must be a multiple of the {num_heads} heads.")
    if facts.hidden_size // num_heads > 4096:
        raise fields.wrong("n_head", "Heads have at most 4,096 elements.")
    if fields.boolean("add_cross_attention", False):
        raise UnsupportedModel(
            "config.json: add_cross_attention is true.",
            why="The layers would also see an encoder's output, and there is no encoder here.",
            fix="Use a model that only continues text.",
        )
    fields.boolean("reorder_and_upcast_attn", False)
    return facts, _program(
        Gpt2Shape(
            vocab_size=facts.vocab_size,
            hidden_size=facts.hidden_size,
            num_heads=num_heads,
            positions=facts.max_positions,
            inner_size=fields.optional_integer("n_inner", 1, 1 << 20) or 4 * facts.hidden_size,
            eps=fields.number("layer_norm_epsilon", 1e-12, 0.1, default=1e-5),
            activation=activation(fields, "activation_function", "gelu_new"),
            scales=_scales(fields, facts.num_layers, facts.hidden_size // num_heads),
            tied=tied,
        )
    )


def _own_names(fields: Fields) -> Fields:
    """Returns the fields under GPT-2's names, with defaults for those that are absent. Raises CorruptModel where two
    names contradict each other."""
    values = {**SILENT, **fields.values}
    for usual, own in SAME_FIELDS.items():
        if usual not in fields.values:
            continue
        if own in fields.values and fields.values[own] != fields.values[usual]:
            raise CorruptModel(
                f"config.json: {usual} and {own} contradict each other.",
                why="They are two names of the same number.",
                fix=f"Remove {usual} if {own} is what the tensors have.",
            )
        values[own] = fields.values[usual]
    return fields.only(values)


def _scales(fields: Fields, num_layers: int, head_dim: int) -> tuple[float, ...]:
    scale = head_dim**-0.5 if fields.boolean("scale_attn_weights", True) else 1.0
    by_layer = fields.boolean("scale_attn_by_inverse_layer_idx", False)
    return tuple(scale / (index + 1) if by_layer else scale for index in range(num_layers))


def _program(shape: Gpt2Shape) -> ProgramText:
    def text(t: Tracer) -> Value:
        with t.layer(PREFIX):
            table = t.matrix("embedding", {"wte": shape.vocab_size}, shape.hidden_size)
            places = t.matrix("positions", {"wpe": shape.positions}, shape.hidden_size)
            x = add(embed(table, t.token_ids, t), embed(places, t.positions, t))
            for index, scale in enumerate(shape.scales):
                with t.layer(f"h.{index}."):
                    x = _self_attention(t, shape, x, scale)
                    x = _feed_forward(t, shape, x)
            rows = _norm(t, shape, "ln_f", gather_rows(x, t.logit_rows))
            if shape.tied:
                return linear(rows, table)
        return linear(rows, t.matrix("head", {"lm_head": shape.vocab_size}, shape.hidden_size))

    return text


def _self_attention(t: Tracer, shape: Gpt2Shape, residual: Value, scale: float) -> Value:
    hidden, heads = shape.hidden_size, shape.num_heads
    h = _norm(t, shape, "ln_1", residual)
    joined = linear(h, t.matrix("qkv", {"attn.c_attn": 3 * hidden}, hidden, bias=True, transposed=True))
    q, k, v = (part.heads(heads) for part in joined.split(hidden, hidden, hidden))
    cache = t.cache(PagedKV(heads, hidden // heads))
    kv_write(cache, k, v, t.slots)
    out = t.matrix("o", {"attn.c_proj": hidden}, hidden, bias=True, transposed=True)
    return add(residual, linear(attention(q, cache, scale).flat(), out))


def _feed_forward(t: Tracer, shape: Gpt2Shape, residual: Value) -> Value:
    hidden, inner = shape.hidden_size, shape.inner_size
    up = t.matrix("up", {"mlp.c_fc": inner}, hidden, bias=True, transposed=True)
    down = t.matrix("down", {"mlp.c_proj": hidden}, inner, bias=True, transposed=True)
    middle = activate(linear(_norm(t, shape, "ln_2", residual), up), shape.activation)
    return add(residual, linear(middle, down))


def _norm(t: Tracer, shape: Gpt2Shape, name: str, x: Value) -> Value:
    weight = t.vector(name, shape.hidden_size)
    return layer_norm(x, weight, t.vector(name, shape.hidden_size, suffix=".bias"), shape.eps)
