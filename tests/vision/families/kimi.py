"""Kimi K2.5 as a tiny folder. Its judge's processor needs torchvision; here its sizes and patches come without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from transformers.image_utils import SizeDict

from tests.vision.families.family import TEXT, Family, Given, library, wide
from tests.vision.files.by_pillow import ByPillow, judge_module, pixels_of
from tests.weights.checkpoints import read_tensors, save

judges: Any = judge_module("kimi_k25.image_processing_kimi_k25")

KIMI_MARKS = (
    *("<|media_pad|>", "<|end|>", "<|start|>", "<|media_begin|>", "<|media_content|>", "<|media_end|>"),
    "<|kimi_k25_video_placeholder|>",
)
KIMI_SETTINGS: Given = {
    **{"size": {"max_height": 20, "max_width": 20}, "max_patches": 40, "patch_size": 8, "merge_size": 2},
    **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "resample": 3},
}
WRITTEN = "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>"


def kimi_k25() -> torch.nn.Module:
    """Learned places of 5 x 5 patches, fitted to each image by cubics. Heads of the tower have 24 elements."""
    find = library(KIMI_MARKS).token_to_id
    text = {
        **{"model_type": "deepseek_v3", "q_lora_rank": 24, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "v_head_dim": 12},
        **{"qk_nope_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
        **{"n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
        **{"routed_scaling_factor": 1.5, "num_key_value_heads": 4},
    }
    config = transformers.Kimi_K25Config(
        text_config={**TEXT, **text},
        vision_config={
            **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2},
            **{"patch_size": 8, "pos_emb_height": 5, "pos_emb_width": 5},
        },
        projection_hidden_size=48,
        tie_word_embeddings=False,
        image_token_id=find(KIMI_MARKS[0]),
        video_token_id=find(KIMI_MARKS[-1]),
        vision_start_token_id=find("<|media_begin|>"),
        vision_end_token_id=find("<|media_end|>"),
    )
    config.architectures = ["Kimi_K25ForConditionalGeneration"]
    return transformers.Kimi_K25ForConditionalGeneration(config)


class KimiByPillow(judges.Kimi_K25ImageProcessor, ByPillow):  # type: ignore[misc, name-defined]
    """The judge's sizes and patches, with Pillow."""

    def __init__(self) -> None:
        """Makes the processor without torchvision."""

    def rescale_and_normalize(self, images: torch.Tensor, *given: Any) -> torch.Tensor:
        """See TorchvisionBackend, which joins both steps."""
        _, factor, _, mean, std = given
        return self.normalize(images.float() * factor, mean, std)


def kimi_processed(images: Sequence[Image.Image], settings: Given) -> Given:
    """The patches of all images in reading order, and the grid of each."""
    usual = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    asked = {**usual, **settings, "size": SizeDict(**settings["size"]), "disable_grouping": True}
    found = KimiByPillow()._preprocess([pixels_of(image) for image in images], **asked, return_tensors=None)
    return {name: found[name] for name in ("pixel_values", "image_grid_thw")}


def kimi_texts(given: Given) -> list[str]:
    """One placeholder for each image row."""
    counts = given["image_grid_thw"].prod(-1) // 4
    return [WRITTEN.replace(KIMI_MARKS[0], KIMI_MARKS[0] * int(count)) for count in counts]


class KimiVl(Family, frozen=True):
    """Kimi-VL, whose tower is that of Kimi K2.5. Its own code is in no version of transformers, so the judge is Kimi
    K2.5. The folder has the names of tensors and fields of Kimi-VL."""

    def write(self, folder: Path, spread: Callable[[torch.Tensor], tuple[float, float]] = wide) -> torch.nn.Module:
        """See Family."""
        judge = super().write(folder, spread)
        path = folder / "model.safetensors"
        save(path, {_name_in_kimi_vl(name): values for name, values in read_tensors(path).items()})
        config = json.loads((folder / "config.json").read_text())
        config |= {"architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl"}
        config["media_placeholder_token_id"] = config.pop("image_token_id")
        own = config["vision_config"] | {"model_type": "moonvit"}
        for name in ("height", "width"):
            own[f"init_pos_emb_{name}"] = own.pop(f"pos_emb_{name}")
        config["vision_config"] = {name: value for name, value in own.items() if name not in NOT_IN_KIMI_VL}
        for name in ("projection_hidden_size", "projection_layer_norm_eps", "vision_start_token_id", "video_token_id"):
            del config[name]
        (folder / "config.json").write_text(json.dumps(config))
        settings = {name: value for name, value in self.settings.items() if name.startswith("image_")}
        settings |= {"in_token_limit": self.settings["max_patches"], "merge_kernel_size": [2, 2], "patch_size": 8}
        (folder / "preprocessor_config.json").write_text(json.dumps({**settings, "pad_input": True}))
        return judge


NOT_IN_KIMI_VL = ("pos_emb_time", "hidden_act", "rope_parameters")


def _name_in_kimi_vl(name: str) -> str:
    name = name.removeprefix("model.").replace("mm_projector.", "multi_modal_projector.")
    name = name.replace("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed.")
    return (
        name.replace("proj.0.", "linear_1.").replace("proj.2.", "linear_2.").replace("model.blocks.", "model.layers.")
    )


VL_SETTINGS = {**KIMI_SETTINGS, "size": {"max_height": 512, "max_width": 512}}
KIMI = (
    Family("kimi-k2.5", kimi_k25, KIMI_MARKS, WRITTEN, KIMI_SETTINGS, kimi_processed, kimi_texts),
    KimiVl("kimi-vl", kimi_k25, KIMI_MARKS, WRITTEN, VL_SETTINGS, kimi_processed, kimi_texts),
)
