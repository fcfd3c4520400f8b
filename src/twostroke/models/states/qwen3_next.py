"""Qwen3-Next and Qwen3.5: three layers of the gated delta rule for one of attention, whose output is gated too.

Knows: their config fields, the names of their tensors. Must not know: which backend runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twostroke.models.common.attend import Heads, attend
from twostroke.models.common.banks import BankShape, EachExpert
from twostroke.models.common.decoder import decoder_of, decoder_program
from twostroke.models.common.delta_net import DeltaNetShape, delta_net
from twostroke.models.common.dense import FeedForwardText
from twostroke.models.common.feed import Feed
from twostroke.models.common.fields import head_dim, kv_heads, read_facts, silu_only, with_silent
from twostroke.models.common.hybrid import attention_layers
from twostroke.models.common.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.nested import nested_text
from twostroke.models.common.norm import Norm
from twostroke.models.common.registry import CommonFacts, ProgramText, architecture
from twostroke.ops.add import add
from twostroke.ops.route import RouteRule
from twostroke.program.model import ExpertStack
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.refused_fields import refuse_fields
from twostroke.spec.rope import rope_from_config

SILENT: Mapping[str, object] = {
    **{"rms_norm_eps": 1e-6, "head_dim": 256, "linear_conv_kernel_dim": 4},
    **{"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16},
    **{"linear_num_value_heads": 32, "full_attention_interval": 4},
}
"""What transformers assumes for both where config.json is silent."""

NEXT_SILENT = {
    **{"num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512},
    **{"shared_expert_intermediate_size": 512, "norm_topk_prob": True, "decoder_sparse_step": 1},
}
BANKS = EachExpert("mlp.experts")
STACKS = (
    ExpertStack("mlp.experts.gate_up_proj", ("gate_proj", "up_proj")),
    ExpertStack("mlp.experts.down_proj", ("down_proj",)),
)
MOE_SILENT = {
    **{"num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512},
    **{"shared_expert_intermediate_size": 512},
}
PARTIAL = 0.25
"""Of a head's elements turn."""

NOT_TEXT = ("model.visual.", "mtp.")
"""Beginnings of the names of tensors that images or guesses of several tokens need."""

PREFIXES = (("model.language_model.", "model."),)


@dataclass(frozen=True, slots=True)
class Hybrid:
    """The shape of a model. attending: for each layer, whether it has attention."""

    fields: Fields
    facts: CommonFacts
    norm: Norm
    heads: Heads
    delta: DeltaNetShape
    attending: tuple[bool, ...]
    tied: bool


@architecture("Qwen3NextForCausalLM", model_type="qwen3_next")
def qwen3_next(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Experts with a shared one in most layers, as decoder_sparse_step and mlp_only_layers say."""
    shape = _read(with_silent(fields, {**SILENT, **NEXT_SILENT}), by_key_head=True)
    fields, layers = shape.fields, shape.facts.num_layers
    count = fields.integer("num_experts", 0, MOST_EXPERTS)
    step, dense = fields.integer("decoder_sparse_step", 1, 4096), set(fields.integers("mlp_only_layers"))
    plain = _dense(fields, shape.facts)
    if not count:
        return shape.facts, _program(shape, (plain,) * layers)
    experts = _experts(fields, shape.facts, count)
    sparse = (index not in dense and (index + 1) % step == 0 for index in range(layers))
    return shape.facts, _program(shape, tuple(experts if each else plain for each in sparse))


@architecture("Qwen3_5ForCausalLM", model_type="qwen3_5_text")
def qwen3_5(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """A dense feed-forward block in each layer."""
    shape = _read(with_silent(fields, {**SILENT, "num_key_value_heads": 4}), by_key_head=False)
    return shape.facts, _program(shape, (_dense(shape.fields, shape.facts),) * shape.facts.num_layers)


@architecture("Qwen3_5ForConditionalGeneration", model_type="qwen3_5")
def qwen3_5_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The language model of a checkpoint that also sees images."""
    text = nested_text(fields, "text_config")
    refuse_fields(text, "Qwen3_5ForCausalLM", ("qwen3_5_text",))
    facts, program = qwen3_5(text)
    return replace(facts, stored_prefixes=PREFIXES), program


@architecture("Qwen3_5MoeForCausalLM", model_type="qwen3_5_moe_text")
def qwen3_5_moe(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Experts with a shared one in each layer. Files hold a tensor for each expert, or stacks of all."""
    shape = _read(with_silent(fields, {**SILENT, **MOE_SILENT}), by_key_head=False)
    block = _experts(shape.fields, shape.facts, shape.fields.integer("num_experts", 1, MOST_EXPERTS))
    return replace(shape.facts, stacks=STACKS), _program(shape, (block,) * shape.facts.num_layers)


@architecture("Qwen3_5MoeForConditionalGeneration", model_type="qwen3_5_moe")
def qwen3_5_moe_with_images(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The language model of a checkpoint that also sees images."""
    text = nested_text(fields, "text_config")
    refuse_fields(text, "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text")
    facts, program = qwen3_5_moe(text)
    return replace(facts, stored_prefixes=PREFIXES), program


def _read(fields: Fields, *, by_key_head: bool) -> Hybrid:
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


def _experts(fields: Fields, facts: CommonFacts, count: int) -> FeedForwardText:
    """Experts, and one that every token meets, by as much as the token says."""
    hidden = facts.hidden_size
    rule = RouteRule(fields.integer("num_experts_per_tok", 1, count), fields.boolean("norm_topk_prob", True))
    inner, begin = fields.integer("shared_expert_intermediate_size", 1, 1 << 20), "mlp.shared_expert"
    feed = Feed(hidden, inner, gate=f"{begin}.gate_proj", up=f"{begin}.up_proj", down=f"{begin}.down_proj")
    return mixture(
        Mixture(
            BankShape(count, hidden, fields.integer("moe_intermediate_size", 1, 1 << 20)),
            LinearRouter("mlp.gate", count, rule),
            BANKS,
            shared=Shared(feed, "mlp.shared_expert_gate"),
        )
    )


def _program(shape: Hybrid, blocks: tuple[FeedForwardText, ...]) -> ProgramText:
    norm, heads = shape.norm, shape.heads
    turn = rope_from_config(shape.fields, heads.head_dim, shape.facts.max_positions, partial=PARTIAL)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = norm(t, "input_layernorm", x)
        if shape.attending[index]:
            x = add(x, attend(t, heads, h, turn=turn))
        else:
            with t.layer("linear_attn."):
                x = add(x, delta_net(t, shape.delta, h))
        return blocks[index](t, x, norm(t, "post_attention_layernorm", x))

    return decoder_program(decoder_of(shape.facts, norm, shape.tied), layer)
