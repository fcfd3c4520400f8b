"""Kimi Linear: three layers of Kimi delta attention for one of latent attention without rotations (Moonshot AI 2025).
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.banks import BankShape, EachExpert
from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.feed import FeedForwardText
from twostroke.models.common.blocks.latent import attend_latents
from twostroke.models.common.blocks.mixture import MOST_EXPERTS, LinearRouter, Mixture, Shared, mixture
from twostroke.models.common.blocks.states.kimi_delta import KimiDeltaShape, kimi_delta
from twostroke.models.common.fields.deepseek import layers_with_experts, require
from twostroke.models.common.fields.fields import refuse_setting, silu_only, usual_names, with_silent
from twostroke.models.common.fields.hybrid import attention_layers
from twostroke.models.common.fields.latent import LatentParts, read_latent
from twostroke.models.common.fields.mixture import named_feed, sigmoid_rule
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add
from twostroke.types.errors import UnsupportedModel

SILENT = {**defaults("kimi_linear"), "n_routed_experts": 256}
OWN_NAMES = {
    **{"model_max_length": "max_position_embeddings", "moe_renormalize": "norm_topk_prob"},
    **{"num_expert_group": "n_group", "num_experts_per_token": "num_experts_per_tok"},
    **{"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
    **{"num_shared_experts": "n_shared_experts", "moe_router_activation_func": "scoring_func"},
}
LINEAR_NAMES = {
    **{"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"},
    **{"short_conv_kernel_size": "linear_conv_kernel_dim"},
}
"""The fields of linear_attn_config in published configs, each with the name that transformers has for it."""
EXPERTS = "block_sparse_moe"
BANKS = EachExpert(f"{EXPERTS}.experts", gate="w1", up="w3", down_name="w2")


@architecture("KimiLinearForCausalLM", model_type="kimi_linear")
def kimi_linear(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Kimi Linear. layer_types names the layers with latent attention; all other layers have Kimi delta
    attention. Without layer_types, linear_attn_config lists the layers of both kinds, counted from 1."""
    silu_only(fields)
    fields = with_silent(usual_names(_with_group(fields), OWN_NAMES), SILENT)
    _check(fields)
    parts = read_latent(fields, {}, interleaved=False)
    scale = (parts.heads.plain + parts.heads.turned) ** -0.5
    parts = replace(parts, heads=replace(parts.heads, turn=None, scale=scale))
    fields, layers = parts.fields, parts.facts.num_layers
    attending = attention_layers(fields, layers, tuple(index > 0 and index % 4 == 0 for index in range(layers)))
    shape = KimiDeltaShape(
        parts.facts.hidden_size,
        fields.integer("linear_num_heads", 1, 4096),
        fields.integer("linear_head_dim", 1, 512),
        fields.integer("linear_conv_kernel_dim", 2, 64),
        parts.norm.eps,
    )
    block, sparse = _experts(parts), layers_with_experts(parts, 1)

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = parts.norm(t, "input_layernorm", x)
        if attending[index]:
            x = add(x, attend_latents(t, parts.heads, h))
        else:
            with t.layer("self_attn."):
                x = add(x, kimi_delta(t, shape, h))
        h = parts.norm(t, "post_attention_layernorm", x)
        return block(t, x, h) if sparse[index] else add(x, parts.feed(t, h))

    dense = (f"model.layers.{index}." for index, each in enumerate(sparse) if not each)
    saved = tuple((f"{begin}{EXPERTS}.", f"{begin}mlp.") for begin in dense)  # the names that transformers writes
    return replace(parts.facts, stored_prefixes=saved), decoder_program(parts.decoder, layer)


def _experts(parts: LatentParts) -> FeedForwardText:
    fields, hidden = parts.fields, parts.facts.hidden_size
    count = fields.integer("n_routed_experts", 1, MOST_EXPERTS)
    inner = fields.integer("moe_intermediate_size", 1, 1 << 20, default=1024)
    every = fields.integer("n_shared_experts", 0, MOST_EXPERTS)
    choice_bias = f"{EXPERTS}.gate.e_score_correction_bias"
    return mixture(
        Mixture(
            BankShape(count, hidden, inner),
            LinearRouter(f"{EXPERTS}.gate", count, sigmoid_rule(fields, count), choice_bias=choice_bias),
            BANKS,
            shared=Shared(named_feed(hidden, every * inner, f"{EXPERTS}.shared_experts")) if every else None,
        )
    )


def _with_group(fields: Fields) -> Fields:
    """Returns the fields with linear_attn_config's members under the names that transformers writes. layer_types takes
    precedence where it is there."""
    group = fields.group("linear_attn_config")
    if group is None:
        return fields
    values = {usual: group.values[own] for own, usual in LINEAR_NAMES.items() if own in group.values}
    full, linear = (group.integers(name) for name in ("full_attn_layers", "kda_layers"))
    if full or linear:
        layers = fields.integer("num_hidden_layers", 1, 4096)
        if sorted((*full, *linear)) != list(range(1, layers + 1)):
            raise group.wrong("kda_layers", f"With full_attn_layers it must name each layer from 1 to {layers} once.")
        kinds = ["full_attention" if index + 1 in full else "linear_attention" for index in range(layers)]
        values.setdefault("layer_types", fields.value("layer_types") or kinds)
    return fields.changed(values)


def _check(fields: Fields) -> None:
    require(fields, "scoring_func", "sigmoid")
    refuse_setting(fields, "num_nextn_predict_layers", "No layer of this family predicts further tokens.")
    refuse_setting(fields, "rope_scaling", "No layer of this family turns.")
    if not fields.boolean("mla_use_nope", True):
        raise UnsupportedModel(
            f"{fields.place}: mla_use_nope is false.",
            why="Latent attention with rotations is not implemented for this family, nor in transformers.",
            fix="Use a model of this family whose mla_use_nope is true.",
        )
