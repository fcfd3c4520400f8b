"""Qwen's families of models that see images, as tiny folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

QWEN_MARKS = ("<|image_pad|>", "<|end|>", "<|start|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>")


def qwen_ids() -> Given:
    """The token ids that configurations of Qwen name."""
    find = library(QWEN_MARKS).token_to_id
    names = ("image_token_id", "vision_start_token_id", "vision_end_token_id", "video_token_id")
    return dict(zip(names, map(find, (QWEN_MARKS[0], *QWEN_MARKS[3:])), strict=True))


def qwen_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of all images, and the grid of each."""
    found = Qwen2VLImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {name: found[name] for name in ("pixel_values", "image_grid_thw")}


def qwen_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    counts = given["image_grid_thw"].prod(-1) // 4
    return [f"<|vision_start|>{'<|image_pad|>' * int(count)}<|vision_end|>" for count in counts]


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
TOWER = {
    **{"depth": 3, "hidden_size": 48, "intermediate_size": 80, "num_heads": 2, "patch_size": 8},
    **{"num_position_embeddings": 36, "out_hidden_size": 64},
}


def qwen3_vl() -> torch.nn.Module:
    """Rows of two layers are added. Heads have 24 elements, so that sections do not end where pairs do."""
    tower = {**TOWER, "deepstack_visual_indexes": [0, 2]}
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 4, 4], "mrope_interleaved": True}
    text = {**TEXT, "head_dim": 24, "rope_parameters": turn}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=tower, tie_word_embeddings=False, **qwen_ids())
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    return transformers.Qwen3VLForConditionalGeneration(config)


def qwen3_vl_moe() -> torch.nn.Module:
    """The same tower before a mixture of experts."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    config = transformers.Qwen3VLMoeConfig(
        text_config={**TEXT, **MOE, "rope_parameters": turn, "head_dim": 16},
        vision_config={**TOWER, "deepstack_visual_indexes": [1]},
        tie_word_embeddings=False,
        **qwen_ids(),
    )
    config.architectures = ["Qwen3VLMoeForConditionalGeneration"]
    return transformers.Qwen3VLMoeForConditionalGeneration(config)


def qwen3_5_moe() -> torch.nn.Module:
    """The same model with a mixture of experts."""
    return qwen3_5("Qwen3_5Moe", **MOE, shared_expert_intermediate_size=48)


def qwen3_5(name: str = "Qwen3_5", **more: Any) -> torch.nn.Module:
    """No rows are added. Most layers of the language model keep states, and a part of each head is rotated."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    text = {
        **TEXT,
        **{"head_dim": 32, "rope_parameters": {**turn, "partial_rotary_factor": 0.5}, "full_attention_interval": 2},
        **{"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2},
        **{"linear_num_value_heads": 4, **more},
    }
    config = getattr(transformers, f"{name}Config")(
        text_config=text, vision_config=TOWER, tie_word_embeddings=False, **qwen_ids()
    )
    config.architectures = [f"{name}ForConditionalGeneration"]
    made: torch.nn.Module = getattr(transformers, config.architectures[0])(config)
    return made


def qwen2_5_vl() -> torch.nn.Module:
    """Windows of 2 x 2 image rows in two of three layers."""
    tower = {
        **{"depth": 3, "hidden_size": 48, "intermediate_size": 80, "num_heads": 2, "patch_size": 8},
        **{"window_size": 32, "out_hidden_size": 64, "fullatt_block_indexes": [1]},
    }
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": turn}, vision_config=tower, tie_word_embeddings=False, **qwen_ids()
    )
    config.architectures = ["Qwen2_5_VLForConditionalGeneration"]
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen2_vl() -> torch.nn.Module:
    """A tower without windows, with layer norms."""
    tower = {"depth": 2, "embed_dim": 48, "hidden_size": 64, "mlp_ratio": 2, "num_heads": 2, "patch_size": 8}
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    config = transformers.Qwen2VLConfig(
        text_config={**TEXT, "rope_parameters": turn}, vision_config=tower, tie_word_embeddings=False, **qwen_ids()
    )
    config.architectures = ["Qwen2VLForConditionalGeneration"]
    return transformers.Qwen2VLForConditionalGeneration(config)


QWEN3_SETTINGS: Given = {
    **{"size": {"shortest_edge": 16 * 16, "longest_edge": 12 * 16 * 16}, "patch_size": 8, "merge_size": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "temporal_patch_size": 2},
}
WRITTEN_MARKS = "<|vision_start|><|image_pad|><|vision_end|>"


QWEN2_SETTINGS = {**QWEN3_SETTINGS, "size": {"shortest_edge": 4 * 16 * 16, "longest_edge": 20 * 16 * 16}}


def _qwen(name: str, judge: Callable[[], torch.nn.Module], settings: Given) -> Family:
    return Family(name, judge, QWEN_MARKS, WRITTEN_MARKS, settings, qwen_processed, qwen_texts, "mm_token_type_ids")


QWEN = (
    _qwen("qwen3-vl", qwen3_vl, QWEN3_SETTINGS),
    _qwen("qwen3-vl-moe", qwen3_vl_moe, QWEN3_SETTINGS),
    _qwen("qwen3.5", qwen3_5, QWEN3_SETTINGS),
    _qwen("qwen3.5-moe", qwen3_5_moe, QWEN3_SETTINGS),
    _qwen("qwen2.5-vl", qwen2_5_vl, QWEN2_SETTINGS),
    _qwen("qwen2-vl", qwen2_vl, QWEN2_SETTINGS),
)
