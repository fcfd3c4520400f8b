"""Refuses, by name, fields of config.json that change the answer and that an architecture does not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields

CHANGING: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            *("final_logit_softcapping", "attn_logit_softcapping", "moe_router_logit_softcapping", "max_attn_value"),
            *("clip_qkv", "swiglu_limit", "attention_multiplier", "attention_value_scale", "attention_chunk_size"),
            *("scale_depth", "dim_model_base", "num_kv_shared_layers"),
        ),
        (0,),
    ),
    **dict.fromkeys(
        (
            *("logit_scale", "logits_scaling", "embedding_multiplier", "residual_multiplier", "lm_head_multiplier"),
            *("attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier"),
            *("ssm_out_multiplier", "output_multiplier", "output_multiplier_scale", "embedding_multiplier_scale"),
            *("attn_output_multiplier", "scale_emb", "qk_scale_factor", "route_scale", "router_scaling_factor"),
            *("routed_scaling_factor", "moe_routed_scaling_factor"),
        ),
        (1,),
    ),
    **dict.fromkeys(
        (
            *("use_bidirectional_attention", "alibi", "use_cla", "add_cross_attention", "use_parallel_residual"),
            *("scale_attn_by_inverse_layer_idx", "attn_temperature_tuning", "moe_apply_router_weight_on_input"),
            *("use_long_context", "scale_embedding"),
        ),
        (False,),
    ),
    **dict.fromkeys(
        (
            *("per_layer_config", "no_rope_layers", "layer_rope_theta", "mlp_multipliers", "ssm_multipliers"),
            *("activation_sparsity_pattern", "sparse_attention_config"),
        ),
        ({}, []),
    ),
}
"""Fields of config.json that change answers, each with the values at which it has no effect; null never has one. Some
architectures read these fields, and a checkpoint's tensors do not show whether they are used. Fields that have no
effect in published configs, such as sliding_window and query_pre_attn_scalar, are left out."""

FROM_KEYS = "read_from_keys"
"""The member of a GGUF file's config that maps each field to the key from which it was made."""


def refuse_fields(fields: Fields, architecture: str, model_types: Sequence[str]) -> None:
    """Raises UnsupportedModel where model_type contradicts the architecture, or is_causal is false. model_types: the
    model types that belong to the architecture, the usual one first."""
    said = fields.text("model_type", "")
    if said and said not in model_types:
        raise UnsupportedModel(
            f"config.json: model_type {said[:40]!r} and architectures {architecture} contradict each other.",
            why="transformers goes by the first, other programs by the second, and the answers differ.",
            fix=f"Write model_type {model_types[0]!r} if the model is a {architecture}.",
        )
    if not fields.boolean("is_causal", True):
        raise UnsupportedModel(
            "config.json: is_causal is false.",
            why="Each position would see those after it; no text can be generated one token after the other.",
            fix="Use a model that was trained to generate text.",
        )


def refuse_unread(fields: Fields, architecture: str) -> None:
    """Raises UnsupportedModel naming a field that changes an answer and that the reader of this architecture did not
    ask for. Call it when the reader is done."""
    keys = fields.values.get(FROM_KEYS)
    for name, key in keys.items() if isinstance(keys, dict) else ():
        if name not in fields.read:
            raise _not_read(str(key), fields.values.get(name), architecture)
    for name, neutral in CHANGING.items():
        value = fields.values.get(name)
        if value is not None and name not in fields.read and value not in neutral:
            raise _not_read(f"{fields.place}: {name}", value, architecture)


def _not_read(field: str, value: Any, architecture: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{field} is {str(value)[:40]}, which is not implemented for {architecture}.",
        why="It changes what a model computes, and this architecture has no place for it here.",
        fix="Use a model without it, or remove it where it has no meaning for this model.",
    )
