"""GLM's families of models that see images, as tiny folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

GLM_MARKS = ("<|image|>", "<|end|>", "<|start|>", "<|begin_of_image|>", "<|end_of_image|>", "<|V|>", "<|v|>", "<|/v|>")
GLM_SETTINGS: Given = {
    **{"size": {"shortest_edge": 8 * 16 * 16, "longest_edge": 41 * 16 * 16}, "patch_size": 8, "merge_size": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "temporal_patch_size": 2},
}


def glm4v_moe() -> torch.nn.Module:
    """The same tower before a mixture of experts."""
    experts = {
        **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1},
        **{"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    }
    return glm4v("Glm4vMoe", **experts)


def glm46v() -> torch.nn.Module:
    """The same model under another name."""
    return glm4v("Glm46V", model_type="glm4v_text")


def glm4v(name: str = "Glm4v", **more: Any) -> torch.nn.Module:
    """Learned places of 5 x 5 patches, fitted to each image by cubics. Half of each head of the text is rotated."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 2, 1], "partial_rotary_factor": 0.5}
    find = library(GLM_MARKS).token_to_id
    kind = "glm4v_moe_vision" if "n_group" in more else "glm4v_vision"
    config = getattr(transformers, f"{name}Config")(
        text_config={**TEXT, "rope_parameters": turn, "head_dim": 16, **more},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "depth": 2, "num_heads": 2, "out_hidden_size": 64},
            **{"image_size": 40, "patch_size": 8, "model_type": kind},
        },
        tie_word_embeddings=False,
        image_token_id=find(GLM_MARKS[0]),
        image_start_token_id=find(GLM_MARKS[3]),
        image_end_token_id=find(GLM_MARKS[4]),
        video_token_id=find(GLM_MARKS[5]),
        video_start_token_id=find(GLM_MARKS[6]),
        video_end_token_id=find(GLM_MARKS[7]),
    )
    config.architectures = [f"{name}ForConditionalGeneration"]
    made: torch.nn.Module = getattr(transformers, config.architectures[0])(config)
    return made


def glm_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of all images, and the grid of each."""
    found = Glm4vImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {name: found[name] for name in ("pixel_values", "image_grid_thw")}


def glm_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    counts = given["image_grid_thw"].prod(-1) // 4
    return [f"<|begin_of_image|>{GLM_MARKS[0] * int(count)}<|end_of_image|>" for count in counts]


def glm_ocr() -> torch.nn.Module:
    """No learned places. Heads have norms, products have biases, and an image row has an inner block of its own
    width."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    find = library(GLM_MARKS).token_to_id
    config = transformers.GlmOcrConfig(
        text_config={**TEXT, "rope_parameters": turn, "head_dim": 16},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "depth": 2, "num_heads": 2, "out_hidden_size": 64},
            "patch_size": 8,
        },
        tie_word_embeddings=False,
        image_token_id=find(GLM_MARKS[0]),
        image_start_token_id=find(GLM_MARKS[3]),
        image_end_token_id=find(GLM_MARKS[4]),
        video_token_id=find(GLM_MARKS[5]),
        video_start_token_id=find(GLM_MARKS[6]),
        video_end_token_id=find(GLM_MARKS[7]),
    )
    config.architectures = ["GlmOcrForConditionalGeneration"]
    return transformers.GlmOcrForConditionalGeneration(config)


def _glm(name: str, judge: Callable[[], torch.nn.Module]) -> Family:
    written = f"<|begin_of_image|>{GLM_MARKS[0]}<|end_of_image|>"
    return Family(name, judge, GLM_MARKS, written, GLM_SETTINGS, glm_processed, glm_texts, "mm_token_type_ids")


GLM = (_glm("glm-4v", glm4v), _glm("glm-4.5v", glm4v_moe), _glm("glm-4.6v", glm46v), _glm("glm-ocr", glm_ocr))
