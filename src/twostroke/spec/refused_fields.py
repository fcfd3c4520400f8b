"""Fields of config.json that change the answer and that an architecture does not read: refused by name.

Knows: which fields change the arithmetic of some architecture, and the values of them that change nothing.
Must not know: which architecture reads what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.spec.fields import Fields
from twostroke.types.errors import UnsupportedModel

CHANGING: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            *("final_logit_softcapping", "attn_logit_softcapping", "router_logit_softcapping", "max_attn_value"),
            *("moe_router_logit_softcapping", "clip_qkv", "sliding_window_pattern", "swiglu_limit", "softmax_scale"),
            *("attention_multiplier", "llama_4_scaling_beta", "attention_chunk_size", "scale_depth", "dim_model_base"),
            *("attention_value_scale", "query_pre_attn_scalar"),
        ),
        (0,),
    ),
    **dict.fromkeys(
        (
            *("logit_scale", "logits_scaling", "embedding_multiplier", "residual_multiplier", "lm_head_multiplier"),
            *("attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier"),
            *("ssm_out_multiplier", "output_multiplier_scale", "embedding_multiplier_scale", "scale_emb"),
            *("attn_output_multiplier", "routed_scaling_factor", "moe_router_scaling_factor"),
        ),
        (1,),
    ),
    **dict.fromkeys(("mlp_multipliers", "ssm_multipliers"), ([],)),
    **dict.fromkeys(
        (
            *("use_bidirectional_attention", "alibi", "use_alibi", "use_qk_norm", "qk_layernorm", "use_cla", "causal"),
            *("add_cross_attention", "is_decoder", "attention_output_gate", "attn_output_gate"),
            *("use_parallel_residual", "scale_attn_by_inverse_layer_idx", "use_gated_attention"),
        ),
        (False,),
    ),
    **dict.fromkeys(("per_layer_config", "no_rope_layers", "layer_rope_theta"), ({}, [])),
}
"""Name -> values that change nothing; null never does. Each is a field that some architecture reads."""

FROM_KEYS = "read_from_keys"
"""The member of the config of a GGUF file that says of which key each field is made."""


def refuse_fields(fields: Fields, architecture: str, model_types: Sequence[str]) -> None:
    """Raises UnsupportedModel naming the field. model_types: what belongs to the architecture, the usual one first."""
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
    for name, neutral in CHANGING.items():
        value = fields.values.get(name)
        if value is not None and name not in fields.read and value not in neutral:
            raise _not_read(f"{fields.place}: {name}", value, architecture)
    keys = fields.values.get(FROM_KEYS)
    for name, key in keys.items() if isinstance(keys, dict) else ():
        if name not in fields.read:
            raise _not_read(str(key), fields.values.get(name), architecture)


def _not_read(field: str, value: Any, architecture: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{field} is {str(value)[:40]}, which is not implemented for {architecture}.",
        why="It changes what a model computes, and this architecture has no place for it here.",
        fix="Use a model without it, or remove it where it has no meaning for this model.",
    )
