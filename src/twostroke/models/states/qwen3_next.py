"""Qwen3-Next and Qwen3.5: three layers of the gated delta rule for one of attention, whose output also has a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twostroke.models.common.blocks.attend import Heads, attend
from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_of, decoder_program
from twostroke.models.common.blocks.feed import Feed, FeedForwardText
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.blocks.states.delta_net import DeltaNetShape, delta_net
from twostroke.models.common.fields.fields import head_dim, kv_heads, read_facts, silu_only, with_silent
from twostroke.models.common.fields.hybrid import attention_layers
from twostroke.models.common.fields.mixture import named_feed
from twostroke.models.common.fields.nested import language_model, text_fields
from twostroke.models.common.prediction import NAMES_ALONE, MtpHead, predicts
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.route import RouteRule
from twostroke.ops.program.stack import ExpertStack
from twostroke.ops.rows.expressions import add
from twostroke.types.spec.rope import RopeSpec, rope_from_config

SILENT: Mapping[str, object] = {
    **{"rms_norm_eps": 1e-6, "head_dim": 256, "linear_conv_kernel_dim": 4},
    **{"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16},
    **{"linear_num_value_heads": 32, "full_attention_interval": 4},
}
"""The defaults of transformers for both families, for fields that config.json does not have."""

NEXT_SILENT = {
    **{"num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512},
    **{"shared_expert_intermediate_size": 512, "norm_topk_prob": True, "decoder_sparse_step": 1},
}
BANKS = EachExpert("mlp.experts")
STACKS = (
    ExpertStack("mlp.experts.gate_up_proj", ("gate_proj", "up_proj")),
    ExpertStack("mlp.experts.down_proj", ("down_proj",)),
)

PARTIAL = 0.25
"""The share of a head's elements that are rotated."""

NOT_TEXT = ("model.visual.", "mtp.")
"""Beginnings of the names of tensors that images or guesses of several tokens need."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """What Qwen3-Next and Qwen3.5 have in common, read from a config. heads: the layers with attention. delta: the
    layers with the gated delta rule. attending: for each layer, whether it has attention."""

    fields: Fields
    facts: CommonFacts
    norm: Norm
    heads: Heads
    delta: DeltaNetShape
    attending: tuple[bool, ...]
    tied: bool


@architecture("Qwen3NextForCausalLM", model_type="qwen3_next")
def qwen3_next(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen3-Next. Most layers have experts and a shared expert; decoder_sparse_step and mlp_only_layers define
    which layers."""
    shape = _read_next(fields)
    fields, layers = shape.fields, shape.facts.num_layers
    count = fields.integer("num_experts", 0, MOST_EXPERTS)
    step, dense = fields.integer("decoder_sparse_step", 1, 4096), set(fields.integers("mlp_only_layers"))
    plain = _dense(fields, shape.facts)
    if not count:
        return shape.facts, _program(shape, (plain,) * layers)
    experts = mixture(gated_mixture(fields, shape.facts, count))
    sparse = (index not in dense and (index + 1) % step == 0 for index in range(layers))
    return shape.facts, _program(shape, tuple(experts if each else plain for each in sparse))


@architecture("Qwen3_5ForCausalLM", model_type="qwen3_5_text")
def qwen3_5(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen3.5. Every layer has a dense feed-forward block."""
    shape = _read_dense(fields)
    return shape.facts, _program(shape, (_dense(shape.fields, shape.facts),) * shape.facts.num_layers)


@architecture("Qwen3_5ForConditionalGeneration", model_type="qwen3_5")
def qwen3_5_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return language_model(fields, "Qwen3_5ForCausalLM")


@architecture("Qwen3_5MoeForCausalLM", model_type="qwen3_5_moe_text")
def qwen3_5_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Qwen3.5 with experts. Every layer has experts and a shared expert. Files hold a tensor for each expert, or
    stacks of all experts."""
    shape, block = _read_moe(fields)
    return replace(shape.facts, stacks=STACKS), _program(shape, (block,) * shape.facts.num_layers)


@architecture("Qwen3_5MoeForConditionalGeneration", model_type="qwen3_5_moe")
def qwen3_5_moe_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads only the language model of a checkpoint that also has an image encoder."""
    return language_model(fields, "Qwen3_5MoeForCausalLM")


@predicts("Qwen3NextForCausalLM")
def next_prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layer that predicts a further token (MTP). It has attention, and experts where the model has them."""
    shape = _read_next(fields)
    count = shape.fields.integer("num_experts", 0, MOST_EXPERTS)
    return _prediction(
        shape,
        mixture(gated_mixture(shape.fields, shape.facts, count)) if count else _dense(shape.fields, shape.facts),
    )


@predicts("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration")
def dense_prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layer that predicts a further token (MTP) of a model without experts. The layer has attention."""
    shape = _read_dense(text_fields(fields))
    return _prediction(shape, _dense(shape.fields, shape.facts))


@predicts("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration")
def moe_prediction(fields: Fields) -> tuple[MtpHead, ...]:
    """Reads the layer that predicts a further token (MTP) of a model with experts. The layer has attention and
    experts."""
    return _prediction(*_read_moe(text_fields(fields)))


def _prediction(shape: Hybrid, block: FeedForwardText) -> tuple[MtpHead, ...]:
    """Returns the layer that predicts a further token (MTP). Its tensors are stored outside the model's layers."""
    norm, turn = shape.norm, turn_of(shape)

    def layer(t: Tracer, x: Value) -> Value:
        x = add(x, attend(t, shape.heads, norm(t, "input_layernorm", x), turn=turn))
        return block(t, x, norm(t, "post_attention_layernorm", x))

    return (MtpHead(norm, layer, "mtp.", "mtp.layers.0.", *NAMES_ALONE),)


def _read_next(fields: Fields) -> Hybrid:
    return read_hybrid(with_silent(fields, {**SILENT, **NEXT_SILENT}), by_key_head=True)


def _read_dense(fields: Fields) -> Hybrid:
    return read_hybrid(with_silent(fields, {**SILENT, "num_key_value_heads": 4}), by_key_head=False)


def _read_moe(fields: Fields) -> tuple[Hybrid, FeedForwardText]:
    shape = read_hybrid(with_silent(fields, {**SILENT, **defaults("qwen3_5_moe_text")}), by_key_head=False)
    count = shape.fields.integer("num_experts", 1, MOST_EXPERTS)
    return shape, mixture(gated_mixture(shape.fields, shape.facts, count))


def read_hybrid(fields: Fields, *, by_key_head: bool) -> Hybrid:
    """Reads what both families have in common, from a config whose defaults are filled in. by_key_head: whether the
    tensors of the gated delta rule are grouped by key head."""
    tied = fields.boolean("tie_word_embeddings", False)
    facts = read_facts(fields, positions=32_768, ignored=(*NOT_TEXT, *(("lm_head.weight",) if tied else ())))
    silu_only(fields)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 0.1), plus=1.0)
    num_heads, biased = fields.integer("num_attention_heads", 1, 4096), fields.boolean("attention_bias", False)
    heads = Heads(
        facts.hidden_size,
        num_heads,
        kv_heads(fields, num_heads, None),
        head_dim(fields, facts.hidden_size, num_heads),
        qkv_bias=biased,
        output_bias=biased,
        head_norm=norm,
        gated=True,
    )
    key_heads = fields.integer("linear_num_key_heads", 1, 4096)
    value_heads = fields.integer("linear_num_value_heads", 1, 4096)
    if value_heads % key_heads:
        raise fields.wrong("linear_num_key_heads", f"It must divide the {value_heads} value heads.")
    delta = DeltaNetShape(
        facts.hidden_size,
        key_heads,
        value_heads,
        fields.integer("linear_key_head_dim", 1, 512),
        fields.integer("linear_value_head_dim", 1, 4096),
        fields.integer("linear_conv_kernel_dim", 2, 64),
        norm.eps,
        by_key_head,
    )
    interval = fields.integer("full_attention_interval", 1, 4096)
    usual = tuple((index + 1) % interval == 0 for index in range(facts.num_layers))
    return Hybrid(fields, facts, norm, heads, delta, attention_layers(fields, facts.num_layers, usual), tied)


def _dense(fields: Fields, facts: CommonFacts) -> FeedForwardText:
    feed = Feed(facts.hidden_size, fields.integer("intermediate_size", 1, 1 << 20))
    return lambda t, residual, h: add(residual, feed(t, h))


def gated_mixture(fields: Fields, facts: CommonFacts, count: int) -> Mixture:
    """Returns a block of `count` experts and a shared expert, which every token uses. A gate, computed from the token's
    row, scales the shared expert's output."""
    hidden = facts.hidden_size
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), fields.boolean("norm_topk_prob", True))
    feed = named_feed(hidden, fields.integer("shared_expert_intermediate_size", 1, 1 << 20), "mlp.shared_expert")
    return Mixture(
        BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, 1 << 20)),
        LinearRouter("mlp.gate", count, rule),
        BANKS,
        shared=Shared(feed, "mlp.shared_expert_gate"),
    )


def _program(shape: Hybrid, blocks: tuple[FeedForwardText, ...]) -> ProgramText:
    norm, heads, turn = shape.norm, shape.heads, turn_of(shape)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if shape.attending[index]:
            x = add(x, attend(t, heads, h, turn=turn))
        else:
            with t.layer("linear_attn."):
                x = add(x, delta_net(t, shape.delta, h))
        return blocks[index](t, x, norm(t, "post_attention_layernorm", x))

    return decoder_program(decoder_of(shape.facts, norm, shape.tied), layer)


def turn_of(shape: Hybrid, partial: float = PARTIAL) -> RopeSpec:
    """Returns the rotation of the model's heads. partial: the share of a head that is rotated where the config does not
    have the field."""
    return rope_from_config(shape.fields, shape.heads.head_dim, shape.facts.max_positions, partial=partial)
