"""MiniMax-Text-01: lightning attention with layers of softmax attention in between, experts, residuals of normed rows
(2025)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.mixture import LinearRouter, Mixture
from twostroke.models.common.blocks.states.lightning import LightningShape, lightning
from twostroke.models.common.fields.fields import refuse_setting, silu_only, usual_names
from twostroke.models.common.fields.hybrid import attention_layers
from twostroke.models.common.fields.mixture import expert_count
from twostroke.models.common.fields.read import Parts, read_parts, window_of
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule
from twostroke.ops.rows.expressions import add, scale
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.rope import RopeSpec, rope_from_config

FIRST_NAMES = {
    f"layernorm_{own}_{factor}": f"{usual}_{factor}_factor"
    for own, usual in (("full_attention", "full_attn"), ("linear_attention", "linear_attn"), ("mlp", "mlp"))
    for factor in ("alpha", "beta")
}
"""The names of scaling factors in the published config.json, each with its name in transformers. Rows are multiplied by
alpha and a block's output by beta before the two are added."""
KINDS = {0: "linear_attention", 1: "full_attention"}
"""The type of a layer for each number of attn_type_list."""
BANKS = EachExpert("block_sparse_moe.experts", gate="w1", up="w3", down_name="w2")
THETA = 1e6
TABLES = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Tensors that transformers saves with a layer of lightning attention. They follow from the layer's number."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """Adds two values: the rows that a block has read, times alpha, and the block's output, times beta."""

    alpha: float
    beta: float

    def __call__(self, rows: Value, made: Value) -> Value:
        """Returns alpha times the rows plus beta times the block's output `made`."""
        return add(scale(rows, self.alpha), scale(made, self.beta))


@architecture("MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", model_type="minimax", other_types=("minimax_text_01",))
def minimax(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads MiniMax-Text-01. The kind of each layer is in attn_type_list in published configs, and in layer_types in
    configs that transformers has saved."""
    published = bool(fields.integers("attn_type_list"))
    parts = read_parts(_published(fields) if published else fields, defaults("minimax"), kv_absent=8)
    fields, dim, layers = parts.fields, parts.heads.head_dim, parts.facts.num_layers
    turning = fields.integer("rotary_dim", 2, dim, default=dim)
    if turning != dim and not published:
        raise UnsupportedModel(
            f"config.json: rotary_dim is {turning}, heads have {dim} elements, and there is no attn_type_list.",
            why="transformers turns whole heads of such a model, the published code only these elements.",
            fix="Use the config.json that was published, with attn_type_list.",
        )
    partial = turning / dim if published else None
    turn = rope_from_config(fields, dim, parts.facts.max_positions, partial=partial, theta=THETA)
    return _model(parts, attention_layers(fields, layers, tuple(index % 2 == 0 for index in range(layers))), turn)


def _published(fields: Fields) -> Fields:
    """Returns the fields under their names in transformers. Raises UnsupportedModel for settings that transformers does
    not have."""
    if not fields.boolean("postnorm", False):
        raise UnsupportedModel(
            "config.json: postnorm is false.",
            why="Implemented is a residual of normed rows, which the published models of this family have.",
            fix="Use a model of this family whose postnorm is true.",
        )
    refuse_setting(fields, "shared_intermediate_size", "Shared experts are not implemented in this family.")
    heads, layers = (fields.integer(f"num_{name}", 1, 4096) for name in ("attention_heads", "hidden_layers"))
    if heads & (heads - 1):
        raise fields.wrong("num_attention_heads", "With attn_type_list it must be a power of two.")
    numbers = fields.integers("attn_type_list")
    if len(numbers) != layers or any(each not in KINDS for each in numbers):
        raise fields.wrong("attn_type_list", f"It must say {layers} times 0 or 1.")
    named = usual_names(fields, FIRST_NAMES)
    return named.changed({"layer_types": [KINDS[each] for each in numbers]})


def _model(parts: Parts, attending: tuple[bool, ...], turn: RopeSpec) -> tuple[CommonFacts, ProgramText]:
    silu_only(parts.fields)
    fields, facts, norm, window = parts.fields, parts.facts, parts.norm, window_of(parts.fields, 0)
    count = expert_count(fields)
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), normalised=True)
    router = LinearRouter("block_sparse_moe.gate", count, rule)
    block = Mixture(BankShape(count, facts.hidden_size, parts.feed.inner_size), router, BANKS)
    shape = LightningShape(facts.hidden_size, parts.heads.num_heads, parts.heads.head_dim, facts.num_layers)
    full, linear, feed = (_mixed(fields, name) for name in ("full_attn", "linear_attn", "mlp"))

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if attending[index]:
            x = full(h, attend(t, parts.heads, h, window=window, turn=turn))
        else:
            x = linear(h, lightning(t, shape, index, h))
        h = norm(t, "post_attention_layernorm", x)
        return feed(h, block(t, h))

    linear_layers = (index for index, each in enumerate(attending) if not each)
    tables = tuple(f"model.layers.{index}.self_attn.{name}" for index in linear_layers for name in TABLES)
    return replace(facts, ignored=(*facts.ignored, *tables)), decoder_program(parts.decoder, layer)


def _mixed(fields: Fields, name: str) -> Mixed:
    alpha, beta = (fields.number(f"{name}_{word}_factor", -1e6, 1e6, default=1.0) for word in ("alpha", "beta"))
    return Mixed(alpha, beta)
