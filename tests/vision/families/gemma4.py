"""Gemma 4 as tiny folders, with a tower and without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.models.gemma4 import image_processing_pil_gemma4
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

from tests.vision.families.family import TEXT, Family, Given, library

GEMMA4_MARKS = ("<|image|>", "<|end|>", "<|start|>", "<|image>", "<image|>", "<|V|>", "<|a|>", "<|a>", "<a|>")
GEMMA4_SETTINGS: Given = {
    **{"patch_size": 4, "max_soft_tokens": 20, "pooling_kernel_size": 3, "do_normalize": True},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7]},
}
image_processing_pil_gemma4._SUPPORTED_SOFT_TOKENS = (20,)  # this few fit into the steps of the tests


def gemma4(tower: Given | None = None, text: Given | None = None) -> torch.nn.Module:
    """Rows of an image see each other in two of four layers, and the tower's results are standardized."""
    find = library(GEMMA4_MARKS).token_to_id
    usual = {
        **{"head_dim": 16, "global_head_dim": 24, "sliding_window": 12, "hidden_size_per_layer_input": 0},
        **{"layer_types": ["sliding_attention", "full_attention"] * 2, "use_bidirectional_attention": "vision"},
    }
    config = transformers.Gemma4Config(
        text_config={**TEXT, **usual, **(text or {})},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"num_key_value_heads": 2, "head_dim": 24, "patch_size": 4, "position_embedding_size": 80},
            **{"standardize": True, **(tower or {})},
        },
        audio_config=None,
        boi_token_id=find(GEMMA4_MARKS[3]),
        eoi_token_id=find(GEMMA4_MARKS[4]),
        image_token_id=find(GEMMA4_MARKS[0]),
        video_token_id=find(GEMMA4_MARKS[5]),
        audio_token_id=find(GEMMA4_MARKS[6]),
        boa_token_id=find(GEMMA4_MARKS[7]),
        eoa_token_index=find(GEMMA4_MARKS[8]),
    )
    config.architectures = ["Gemma4ForConditionalGeneration"]
    made = transformers.Gemma4ForConditionalGeneration(config)
    for name, buffer in made.named_buffers():
        if name.endswith("std_bias"):
            torch.nn.init.normal_(buffer, 0.0, 0.2)
        elif name.endswith("std_scale"):
            torch.nn.init.normal_(buffer, 1.0, 0.2)
        elif name.endswith(("put_min", "put_max")):
            torch.nn.init.uniform_(buffer, 0.3, 1.2).mul_(-1.0 if name.endswith("min") else 1.0)
        elif name.endswith("layer_scalar"):
            torch.nn.init.uniform_(buffer, 0.5, 1.5)
    return made


def gemma4_small() -> torch.nn.Module:
    """Each layer has numbers of its own for each token, the products of the tower have bounds, and the window is longer
    than most prompts."""
    return gemma4(
        {"standardize": False, "use_clipped_linears": True},
        {
            **{"use_bidirectional_attention": None, "hidden_size_per_layer_input": 12, "sliding_window": 100},
            "vocab_size_per_layer_input": 320,
        },
    )


def gemma4_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of each image in reading order with padding after them, and their places."""
    found = Gemma4ImageProcessorPil(**settings)(images=list(images), return_tensors="pt")
    return {name: found[name] for name in ("pixel_values", "image_position_ids")}


def gemma4_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    counts = (given["image_position_ids"] >= 0).all(-1).sum(-1) // 9
    return [f"<|image>{GEMMA4_MARKS[0] * int(count)}<image|>" for count in counts]


def gemma4_unified() -> torch.nn.Module:
    """There is no tower: an image row is made of its pixels alone."""
    find = library(GEMMA4_MARKS).token_to_id
    config = transformers.Gemma4UnifiedConfig(
        text_config={
            **TEXT,
            **{"head_dim": 16, "global_head_dim": 24, "sliding_window": 12, "hidden_size_per_layer_input": 0},
            **{"layer_types": ["sliding_attention", "full_attention"] * 2, "use_bidirectional_attention": "vision"},
        },
        vision_config={
            **{"patch_size": 4, "pooling_kernel_size": 3, "mm_embed_dim": 48, "mm_posemb_size": 80},
            "output_proj_dims": 48,
        },
        audio_config=None,
        boi_token_id=find(GEMMA4_MARKS[3]),
        eoi_token_id=find(GEMMA4_MARKS[4]),
        image_token_id=find(GEMMA4_MARKS[0]),
        video_token_id=find(GEMMA4_MARKS[5]),
        audio_token_id=find(GEMMA4_MARKS[6]),
        boa_token_id=find(GEMMA4_MARKS[7]),
        eoa_token_index=find(GEMMA4_MARKS[8]),
    )
    config.architectures = ["Gemma4UnifiedForConditionalGeneration"]
    made = transformers.Gemma4UnifiedForConditionalGeneration(config)
    for name, parameter in made.named_parameters():
        if name.endswith("pos_embedding"):
            torch.nn.init.normal_(parameter, 0.0, 0.5)
    return made


def unified_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of Gemma 4, joined to those of image rows, as its own processor does, which needs torchvision.
    Padding has the place -1."""
    found, most = Gemma4ImageProcessorPil(**settings)(images=list(images), return_tensors="pt"), 20
    patches, places = torch.zeros(len(images), most, 12 * 12 * 3), torch.full((len(images), most, 2), -1)
    for number, (own, at) in enumerate(zip(found["pixel_values"], found["image_position_ids"], strict=True)):
        columns, lines = (int(each) for each in (at.max(0).values + 1) // 3)
        count = lines * columns
        grid = own[: 9 * count].reshape(lines, 3, columns, 3, 4, 4, 3).permute(0, 2, 1, 4, 3, 5, 6)
        patches[number, :count] = grid.reshape(count, -1)
        numbers = torch.arange(count)
        places[number, :count] = torch.stack([numbers % columns, numbers // columns], -1)
    return {"pixel_values": patches, "image_position_ids": places}


def unified_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    counts = (given["image_position_ids"] >= 0).all(-1).sum(-1)
    return [f"<|image>{GEMMA4_MARKS[0] * int(count)}<image|>" for count in counts]


def unified_pixels(given: Given) -> list[torch.Tensor]:
    """The patches of one image."""
    count = int((given["image_position_ids"][0] >= 0).all(-1).sum())
    return [given["pixel_values"][0, :count].reshape(count, 12, 12, 3)]


def unified_masks(judge: torch.nn.Module, types: torch.Tensor) -> Given:
    """The masks that the judge's class makes for a static cache: rows of an image see each other in layers with a
    window, within the window. The masks of its forward pass let them see each other in all layers and beyond the
    window, as in Gemma 3. transformers corrected that in Gemma 4 alone (huggingface/transformers#46850)."""
    length = types.shape[1]
    masks: Given = judge.create_masks_for_generate(
        judge.config, torch.empty(1, length, 0), None, None, torch.arange(length)[None], types
    )
    return masks


GEMMA4_UNIFIED = Family(
    *("gemma4-unified", gemma4_unified, GEMMA4_MARKS, GEMMA4_MARKS[0], GEMMA4_SETTINGS),
    *(unified_processed, unified_texts),
    types="mm_token_type_ids",
    pixels=unified_pixels,
    masks=unified_masks,
    pool="",
)


def gemma4_pixels(given: Given) -> list[torch.Tensor]:
    """The patches of one image, as its tower reads them."""
    count = int((given["image_position_ids"][0] >= 0).all(-1).sum())
    return [2 * given["pixel_values"][0, :count].reshape(count, 4, 4, 3) - 1]


def _gemma4(name: str, judge: Callable[[], torch.nn.Module], **more: Any) -> Family:
    return Family(
        *(name, judge, GEMMA4_MARKS, GEMMA4_MARKS[0], GEMMA4_SETTINGS, gemma4_processed, gemma4_texts),
        types="mm_token_type_ids",
        pixels=gemma4_pixels,
        doubled=True,
        **more,
    )


GEMMA4 = (_gemma4("gemma4", gemma4, pool=""), _gemma4("gemma4-small", gemma4_small), GEMMA4_UNIFIED)
