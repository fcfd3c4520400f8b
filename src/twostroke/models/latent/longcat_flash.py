"""LongCat-Flash: layers of two blocks of latent attention, two dense blocks, and experts of which some compute nothing.

A layer's experts read what the first dense block reads, and their output is added after the second dense block
(shortcut-connected; Meituan 2025). The results agree with transformers' longcat_flash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.latent import attend_latents
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture
from twostroke.models.common.fields.deepseek import require
from twostroke.models.common.fields.fields import refuse_setting, silu_only, usual_names
from twostroke.models.common.fields.latent import LatentParts, read_latent
from twostroke.models.common.fields.mixture import LARGEST, named_feed
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.products.experts import ExpertRule
from twostroke.ops.products.idle_share import idle_share
from twostroke.ops.products.route import RouteRule
from twostroke.ops.rows.expressions import add
from twostroke.ops.rows.multiply import multiply

SILENT = {**defaults("longcat_flash"), "rope_theta": 1e7, "num_hidden_layers": 28}
OWN_NAMES = {
    "num_layers": "num_hidden_layers",
    "ffn_hidden_size": "intermediate_size",
    "expert_ffn_hidden_size": "moe_intermediate_size",
    "moe_topk": "num_experts_per_tok",
}
HALVES = (0, 1)
"""The numbers of a layer's two attention blocks, and of its two dense blocks."""


@dataclass(frozen=True, slots=True)
class PartlyIdle:
    """A mixture of experts whose last `idle` experts are identities: their output is their input."""

    block: Mixture
    idle: int

    def __call__(self, t: Tracer, h: Value) -> Value:
        """Returns the weighted sum of the chosen experts' outputs for the normed rows h, before it is added to the
        residual. The output of an idle expert (a zero expert) is its input."""
        routes = self.block.router(t, h)
        made = self.block.of_routes(t, h, routes)
        return add(made, multiply(h, idle_share(routes, self.block.shape.experts))) if self.idle else made


@architecture("LongcatFlashForCausalLM", model_type="longcat_flash")
def longcat_flash(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads LongCat-Flash. num_layers counts layers of two blocks of attention each. zero_expert_num counts experts
    that compute nothing."""
    parts = _parts(fields)
    choice = _experts(parts)
    heads = [replace(parts.heads, name=f"self_attn.{half}") for half in HALVES]
    feeds = [named_feed(parts.facts.hidden_size, parts.feed.inner_size, f"mlps.{half}") for half in HALVES]

    def attended(t: Tracer, half: int, x: Value) -> Value:
        return add(x, attend_latents(t, heads[half], parts.norm(t, f"input_layernorm.{half}", x)))

    def layer(t: Tracer, _index: int, x: Value) -> Value:
        x = attended(t, 0, x)
        h = parts.norm(t, "post_attention_layernorm.0", x)
        beside = choice(t, h)
        x = attended(t, 1, add(x, feeds[0](t, h)))
        x = add(x, feeds[1](t, parts.norm(t, "post_attention_layernorm.1", x)))
        return add(x, beside)

    return parts.facts, decoder_program(parts.decoder, layer)


def _parts(fields: Fields) -> LatentParts:
    """Reads the model's parts from its config. The latents of queries and of keys are scaled; the scale of queries is
    part of the scores' factor."""
    silu_only(fields)
    for name in ("mla_scale_q_lora", "mla_scale_kv_lora"):
        if not fields.boolean(name, True):
            raise fields.wrong(name, "transformers scales the latents of this family whatever it says.")
    layers = fields.integer("num_layers", 1, 4096, default=28)
    if fields.integer("num_hidden_layers", 1, 8192, default=layers) not in (layers, 2 * layers):
        raise fields.wrong("num_hidden_layers", f"It must be num_layers, {layers}, or twice as many.")
    values = {name: value for name, value in fields.values.items() if name != "num_hidden_layers"}
    parts = read_latent(usual_names(fields.only(values), OWN_NAMES), SILENT, interleaved=True)
    hidden, heads = parts.facts.hidden_size, parts.heads
    if not heads.query_rank:
        raise fields.wrong("q_lora_rank", "Queries of this family are made of a latent.")
    heads = replace(
        heads, scale=heads.scale * (hidden / heads.query_rank) ** 0.5, latent_scale=(hidden / heads.rank) ** 0.5
    )
    return replace(parts, facts=replace(parts.facts, ignored=_not_read(parts)), heads=heads)


def _not_read(parts: LatentParts) -> tuple[str, ...]:
    """Returns the names of tensors that are not read: layers that predict further tokens, and matrices that
    transformers writes for experts that compute nothing."""
    first, idle = parts.fields.integer("n_routed_experts", 1, MOST_EXPERTS), _idle(parts.fields)
    prefixes = [f"model.layers.{layer}.mlp.experts." for layer in range(parts.facts.num_layers)]
    unused = [f"{prefix}{expert}." for prefix in prefixes for expert in range(first, first + idle)]
    return (*parts.facts.ignored, "model.mtp.", *unused)


def _idle(fields: Fields) -> int:
    most = MOST_EXPERTS - fields.integer("n_routed_experts", 1, MOST_EXPERTS)
    return fields.optional_integer("zero_expert_num", 0, most) or 0


def _experts(parts: LatentParts) -> PartlyIdle:
    """Reads a layer's experts. Scores are shares of a softmax over all experts. A bias is added to them only to choose
    the experts; a chosen expert's weight is its score without bias, times a factor."""
    fields = parts.fields
    refuse_setting(fields, "router_bias", "transformers makes these biases and does not add them.")
    refuse_setting(fields, "norm_topk_prob", "Weights of this family's experts are not divided by their sum.")
    require(fields, "zero_expert_type", "identity")
    count, idle = fields.integer("n_routed_experts", 1, MOST_EXPERTS), _idle(fields)
    rule = RouteRule(
        fields.integer("num_experts_per_tok", 1, count + idle),
        factor=fields.number("routed_scaling_factor", 1e-6, 1e6),
    )
    name = "mlp.router"
    block = Mixture(
        BankShape(count, parts.facts.hidden_size, fields.integer("moe_intermediate_size", 1, LARGEST)),
        LinearRouter(f"{name}.classifier", count + idle, rule, choice_bias=f"{name}.e_score_correction_bias"),
        EachExpert("mlp.experts"),
        ExpertRule(idle=idle),
    )
    return PartlyIdle(block, idle)
