"""Decoders inside models that read images: their GGUF names differ from those of the plain decoder, their layers do
not.

The parts that read images lie in a file of their own (mmproj): see projector.py. An image row has several positions,
each of which rotates one section of a head; a token of text rotates the whole head by one position. Sources:
conversion/{qwenvl,qwen3vl,ernie,hunyuan}.py of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twostroke.ops.operands import I32Array
from twostroke.weights.gguf.families.dense import GLM4, HEAD_NORMS
from twostroke.weights.gguf.families.experts import COUNTS
from twostroke.weights.gguf.families.family import Config, Family, Place
from twostroke.weights.gguf.families.names import DENSE, EXPERTS
from twostroke.weights.gguf.keys import Keys
from twostroke.weights.gguf.row_orders import pairs_of_halves

More = Callable[[Keys, Config], dict[str, Any]]


def _of_text(more: More) -> More:
    """Returns a function for Family.more. It returns the fields of the plain text decoder, which `more` computes, and
    adds mrope_section, the sections of its rotary positions."""

    def own(keys: Keys, config: Config) -> dict[str, Any]:
        keys.ignore("n_deepstack_layers")
        sections = keys.each("rope.dimension_sections", 3) if keys.has("rope.dimension_sections") else []
        turns = {"rope_scaling": {"rope_type": "default", "mrope_section": sections}} if any(sections) else {}
        return turns | more(keys, config)

    return own


def _qwen(keys: Keys, config: Config) -> dict[str, Any]:
    return {"use_sliding_window": False, "sliding_window": None}


def _qwen_experts(keys: Keys, config: Config) -> dict[str, Any]:
    return {"norm_topk_prob": keys.truth("expert_weights_norm", True), "sliding_window": None}


def _ernie(keys: Keys, _: Config) -> dict[str, Any]:
    return {"use_bias": keys.has_tensor("attn_q.bias")}


def _hunyuan(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the rope of Hunyuan. The file has the original base of rotations, from which a larger base is computed
    with alpha."""
    keys.ignore("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length")
    if not keys.has("rope.scaling.alpha"):
        return {}
    theta, alpha = config.get("rope_theta", 10_000.0), keys.number("rope.scaling.alpha")
    return {"rope_scaling": {"rope_type": "dynamic", "rope_theta": theta, "alpha": alpha, "factor": 1.0}}


def _paired(config: Config, rows: int) -> I32Array:
    """Returns, for each row of q or k of the Hugging Face checkpoint, the stored row. The checkpoint has the two rows
    of a rotary pair next to each other; the file has the first rows of all pairs of a head, then the second rows."""
    dim = int(config["head_dim"])
    return pairs_of_halves(rows, dim, int(dim * float(config.get("partial_rotary_factor", 1.0))))


def _glm(keys: Keys, config: Config) -> dict[str, Any]:
    """Returns the width of a head from a tensor's shape: few files have a key for it."""
    return {"head_dim": keys.tensor_shape("attn_q.weight")[0] // int(config["num_attention_heads"])}


FAMILIES: Mapping[str, Family] = {
    "qwen2vl": Family("Qwen2ForCausalLM", "qwen2", DENSE, windows=True, more=_of_text(_qwen)),
    "qwen3vl": Family("Qwen3ForCausalLM", "qwen3", DENSE, windows=True, more=_of_text(_qwen)),
    "qwen3vlmoe": Family(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        {**DENSE, **EXPERTS},
        windows=True,
        keys=COUNTS,
        more=_of_text(_qwen_experts),
    ),
    "glm4v": Family(
        "Glm4ForCausalLM",
        "glm4",
        {
            **GLM4,
            "attn_q": Place("self_attn.q_proj", order=_paired),
            "attn_k": Place("self_attn.k_proj", order=_paired),
        },
        partial=True,
        more=_of_text(_glm),
    ),
    "paddleocr": Family("PaddleOCRVLForConditionalGeneration", "paddleocr_vl", DENSE, more=_of_text(_ernie)),
    "hunyuan_vl": Family(
        "HunYuanVLForConditionalGeneration",
        "hunyuan_vl",
        {**DENSE, **HEAD_NORMS},
        more=_of_text(_hunyuan),
    ),
}
