"""Families of models that see images, as tiny folders: random weights, a tokenizer of bytes, a template, a processor
file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from msgspec import structs
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.vision.family import TEXT, Family, Given, library
from tests.vision.later_families import LATER, WRITTEN_ALONE

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


PADDLE_MARKS = ("<|IMAGE_PLACEHOLDER|>", "<|end|>", "<|start|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO|>")
PADDLE_SETTINGS: Given = {
    **{"size": {"shortest_edge": 4 * 16 * 16, "longest_edge": 20 * 16 * 16}, "patch_size": 8, "merge_size": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "temporal_patch_size": 1},
}


def paddleocr_vl() -> torch.nn.Module:
    """Learned places of 5 x 5 patches, fitted to each image."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
    find = library(PADDLE_MARKS).token_to_id
    config = transformers.PaddleOCRVLConfig(
        text_config={**TEXT, "rope_parameters": turn, "head_dim": 16},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"image_size": 40, "patch_size": 8},
        },
        tie_word_embeddings=False,
        image_token_id=find(PADDLE_MARKS[0]),
        vision_start_token_id=find(PADDLE_MARKS[3]),
        vision_end_token_id=find(PADDLE_MARKS[4]),
        video_token_id=find(PADDLE_MARKS[5]),
    )
    config.architectures = ["PaddleOCRVLForConditionalGeneration"]
    return transformers.PaddleOCRVLForConditionalGeneration(config)


def paddle_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of all images in reading order, and the grid of each."""
    found = PaddleOCRVLImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {name: found[name] for name in ("pixel_values", "image_grid_thw")}


def paddle_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    counts = given["image_grid_thw"].prod(-1) // 4
    return [f"<|IMAGE_START|>{PADDLE_MARKS[0] * int(count)}<|IMAGE_END|>" for count in counts]


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


PIXTRAL_MARKS = ("[IMG]", "<|end|>", "<|start|>", "[IMG_BREAK]", "[IMG_END]")
PIXTRAL_TOWER = {
    **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 2},
    **{"patch_size": 8, "image_size": 96, "hidden_act": "silu", "model_type": "pixtral"},
}


def mistral3() -> torch.nn.Module:
    """Four patches become one image row."""
    config = transformers.Mistral3Config(
        text_config={**TEXT, "model_type": "mistral", "sliding_window": None},
        vision_config=PIXTRAL_TOWER,
        image_token_index=library(PIXTRAL_MARKS).token_to_id("[IMG]"),
        tie_word_embeddings=False,
    )
    config.architectures = ["Mistral3ForConditionalGeneration"]
    return transformers.Mistral3ForConditionalGeneration(config)


def pixtral() -> torch.nn.Module:
    """Each patch becomes an image row."""
    config = transformers.LlavaConfig(
        text_config={**TEXT, "model_type": "mistral", "sliding_window": None},
        vision_config=PIXTRAL_TOWER,
        image_token_index=library(PIXTRAL_MARKS).token_to_id("[IMG]"),
        tie_word_embeddings=False,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    config.architectures = ["LlavaForConditionalGeneration"]
    return transformers.LlavaForConditionalGeneration(config)


LIGHTON_MARKS = ("<|image_pad|>", "<|end|>", "<|start|>", "<|vision_start|>", "<|vision_end|>")


def lighton_ocr() -> torch.nn.Module:
    """Four patches become one image row, before another language model, and there are no breaks between lines."""
    config = transformers.LightOnOcrConfig(
        text_config={**TEXT, "model_type": "qwen3", "head_dim": 16},
        vision_config=PIXTRAL_TOWER,
        image_token_id=library(LIGHTON_MARKS).token_to_id(LIGHTON_MARKS[0]),
        tie_word_embeddings=False,
    )
    config.architectures = ["LightOnOcrForConditionalGeneration"]
    return transformers.LightOnOcrForConditionalGeneration(config)


def lighton_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    return [LIGHTON_MARKS[0] * int(lines * columns) for lines, columns in given["image_sizes"] // 16]


def pixtral_process(unit: int) -> Callable[[Sequence[Image.Image], Given], Given]:
    """The images of one prompt, padded to one size, and the size of each. unit: the side of an image row."""

    def process(images: Sequence[Image.Image], settings: Given) -> Given:
        made = PixtralImageProcessorPil(**{**settings, "patch_size": {"height": unit, "width": unit}})
        found = made(images=list(images), return_tensors="pt")
        return {"pixel_values": found["pixel_values"], "image_sizes": torch.as_tensor(found["image_sizes"])}

    return process


def pixtral_texts(unit: int) -> Callable[[Given], list[str]]:
    """Lines of image rows with breaks between them."""

    def texts(given: Given) -> list[str]:
        sizes = (given["image_sizes"] // unit).tolist()
        return ["[IMG_BREAK]".join(["[IMG]" * columns] * lines) + "[IMG_END]" for lines, columns in sizes]

    return texts


PIXTRAL_SETTINGS: Given = {"size": {"longest_edge": 60}, "image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]}
QWEN3_SETTINGS: Given = {
    **{"size": {"shortest_edge": 16 * 16, "longest_edge": 12 * 16 * 16}, "patch_size": 8, "merge_size": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "temporal_patch_size": 2},
}
WRITTEN = "<|vision_start|><|image_pad|><|vision_end|>"

GEMMA_MARKS = ("<image_soft_token>", "<|end|>", "<|start|>", "<start_of_image>", "<end_of_image>")
GEMMA_SETTINGS: Given = {
    **{"size": {"height": 32, "width": 32}, "resample": 2, "image_mean": [0.5, 0.4, 0.6]},
    "image_std": [0.5, 0.3, 0.7],
}


def gemma3_wide() -> torch.nn.Module:
    """The window is longer than most prompts."""
    return gemma3(100)


def gemma3_sliding() -> torch.nn.Module:
    """The layers are as in GGUF files, where the last one of six layers has no window."""
    return gemma3(12, ["sliding_attention"] * 4)


def gemma3(window: int = 12, kinds: Sequence[str] = ("sliding_attention", "full_attention") * 2) -> torch.nn.Module:
    """The window is shorter than an image, and every second layer sees everything."""
    find = library(GEMMA_MARKS).token_to_id
    config = transformers.Gemma3Config(
        text_config={
            **TEXT,
            **{"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": window, "layer_types": list(kinds)},
        },
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"image_size": 32, "patch_size": 4, "model_type": "siglip_vision_model"},
        },
        mm_tokens_per_image=16,
        boi_token_index=find("<start_of_image>"),
        eoi_token_index=find("<end_of_image>"),
        image_token_index=find("<image_soft_token>"),
    )
    config.architectures = ["Gemma3ForConditionalGeneration"]
    return transformers.Gemma3ForConditionalGeneration(config)


def gemma3_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """One tile for each image."""
    found = Gemma3ImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {"pixel_values": found["pixel_values"]}


def gemma3_texts(given: Given) -> list[str]:
    """The marks that the processor writes."""
    rows = "<image_soft_token>" * 16
    return [f"\n\n<start_of_image>{rows}<end_of_image>\n\n"] * len(given["pixel_values"])


QWEN2_SETTINGS = {**QWEN3_SETTINGS, "size": {"shortest_edge": 4 * 16 * 16, "longest_edge": 20 * 16 * 16}}


def _qwen(name: str, judge: Callable[[], torch.nn.Module], settings: Given) -> Family:
    return Family(name, judge, QWEN_MARKS, WRITTEN, settings, qwen_processed, qwen_texts, "mm_token_type_ids")


def _glm(name: str, judge: Callable[[], torch.nn.Module]) -> Family:
    written = f"<|begin_of_image|>{GLM_MARKS[0]}<|end_of_image|>"
    return Family(name, judge, GLM_MARKS, written, GLM_SETTINGS, glm_processed, glm_texts, "mm_token_type_ids")


def _gemma(name: str, judge: Callable[[], torch.nn.Module], pool: str) -> Family:
    process, texts, mark = gemma3_processed, gemma3_texts, GEMMA_MARKS[3]
    return Family(name, judge, GEMMA_MARKS, mark, GEMMA_SETTINGS, process, texts, "token_type_ids", pool)


def _pixtral(name: str, judge: Callable[[], torch.nn.Module], unit: int) -> Family:
    process, texts = pixtral_process(unit), pixtral_texts(unit)
    return Family(name, judge, PIXTRAL_MARKS, "[IMG]", PIXTRAL_SETTINGS, process, texts)


_ALL = (
    _qwen("qwen3-vl", qwen3_vl, QWEN3_SETTINGS),
    _qwen("qwen3-vl-moe", qwen3_vl_moe, QWEN3_SETTINGS),
    _qwen("qwen3.5", qwen3_5, QWEN3_SETTINGS),
    _qwen("qwen3.5-moe", qwen3_5_moe, QWEN3_SETTINGS),
    _qwen("qwen2.5-vl", qwen2_5_vl, QWEN2_SETTINGS),
    _qwen("qwen2-vl", qwen2_vl, QWEN2_SETTINGS),
    _gemma("gemma3", gemma3, ""),
    _gemma("gemma3-wide", gemma3_wide, "280KB"),
    Family(
        *("paddleocr-vl", paddleocr_vl, PADDLE_MARKS, f"<|IMAGE_START|>{PADDLE_MARKS[0]}<|IMAGE_END|>"),
        *(PADDLE_SETTINGS, paddle_processed, paddle_texts, "mm_token_type_ids"),
    ),
    _glm("glm-4v", glm4v),
    _glm("glm-4.5v", glm4v_moe),
    _glm("glm-4.6v", glm46v),
    _glm("glm-ocr", glm_ocr),
    _pixtral("mistral3", mistral3, 16),
    Family(
        *("lighton-ocr", lighton_ocr, LIGHTON_MARKS, LIGHTON_MARKS[0]),
        *(PIXTRAL_SETTINGS, pixtral_process(16), lighton_texts),
    ),
    _pixtral("pixtral", pixtral, 8),
    *LATER,
)
FAMILIES = {family.name: family for family in _ALL}
WRITTEN = {
    **FAMILIES,
    **{family.name: family for family in WRITTEN_ALONE},
    "gemma3-sliding": structs.replace(FAMILIES["gemma3"], judge=gemma3_sliding),
}
"""Those whose folders `write_family` writes (tests/vision/folders.py)."""
