"""Ling 3: several layers of Kimi delta attention, then one of latent attention, which has a gate for each head (Ant
2026)."""

from __future__ import annotations

from dataclasses import replace

from twostroke.models.common.blocks.decoder import decoder_program
from twostroke.models.common.blocks.latent import LatentNames, attend_latents
from twostroke.models.common.blocks.states.kimi_delta import KimiDeltaShape, kimi_delta
from twostroke.models.common.fields.deepseek import prediction_layers, require
from twostroke.models.common.fields.fields import refuse_setting, silu_only, usual_names, with_silent
from twostroke.models.common.fields.hybrid import attention_layers
from twostroke.models.common.fields.latent import read_latent
from twostroke.models.common.fields.mixture import listed_blocks, sigmoid_mixture
from twostroke.models.kit import CommonFacts, Fields, ProgramText, Tracer, Value, architecture, defaults
from twostroke.ops.rows.expressions import add
from twostroke.types.errors import UnsupportedModel

SILENT = {**defaults("bailing_hybrid"), "head_dim": 128}
OWN_NAMES = {
    **{"model_max_length": "max_position_embeddings", "moe_renormalize": "norm_topk_prob"},
    **{"num_expert_group": "n_group", "num_experts_per_token": "num_experts_per_tok"},
    **{"num_shared_experts": "n_shared_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    "linear_conv_kernel_dim": "short_conv_kernel_size",
}
BLOCK, OUT = "attention", "dense"
"""The beginning of the names of an attention block's tensors, and the name of its last product."""


@architecture("BailingHybridForCausalLM", model_type="bailing_hybrid")
def bailing_hybrid(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """Reads Ling 3. In each group of layer_group_size layers the last one has latent attention, unless layer_types
    overrides this."""
    silu_only(fields)
    fields = with_silent(usual_names(fields, OWN_NAMES), SILENT)
    _check(fields)
    parts = read_latent(fields, {}, interleaved=True, ignored=prediction_layers(fields))
    heads = replace(parts.heads, gate="g_proj", name=BLOCK, names=LatentNames(out=OUT))
    fields, layers, hidden = parts.fields, parts.facts.num_layers, parts.facts.hidden_size
    group = fields.integer("layer_group_size", 1, 4096)
    attending = attention_layers(fields, layers, tuple((index + 1) % group == 0 for index in range(layers)))
    shape = KimiDeltaShape(
        hidden,
        fields.integer("linear_num_heads", 1, 4096, default=heads.num_heads),
        fields.integer("linear_head_dim", 1, 512, default=fields.integer("head_dim", 1, 512)),
        fields.integer("short_conv_kernel_size", 2, 64),
        parts.norm.eps,
        direct=True,
        lowest=fields.number("kda_lower_bound", -1e3, -1e-3) if fields.boolean("kda_safe_gate", True) else 0.0,
        out=OUT,
        wide_logs=False,
    )
    experts = sigmoid_mixture(fields, hidden, "mlp.gate.expert_bias")
    blocks = listed_blocks(fields, experts, layers, fields.integer("first_k_dense_replace", 0, layers))

    def layer(t: Tracer, index: int, x: Value) -> Value:
        h = parts.norm(t, "input_layernorm", x)
        if attending[index]:
            x = add(x, attend_latents(t, heads, h))
        else:
            with t.layer(f"{BLOCK}."):
                x = add(x, kimi_delta(t, shape, h))
        h, block = parts.norm(t, "post_attention_layernorm", x), blocks[index]
        return block(t, x, h) if block else add(x, parts.feed(t, h))

    return parts.facts, decoder_program(replace(parts.decoder, embedding="model.word_embeddings"), layer)


def _check(fields: Fields) -> None:
    require(fields, "scoring_func", "sigmoid")
    require(fields, "score_function", "sigmoid")
    refuse_setting(fields, "q_lora_rank", "Queries of this family are made of the rows themselves.")
    refuse_setting(fields, "attention_bias", "No published model of this family has biases in its attention.")
    if not fields.boolean("rope_interleave", True):
        raise UnsupportedModel(
            f"{fields.place}: rope_interleave is false.",
            why="Rotary pairs of this family lie side by side, in transformers too.",
            fix="Use a model of this family whose rope_interleave is true.",
        )
