"""Tiny configs of models that also take images, where the language model belongs to another family. Also the language
model of Gemma 3n under the names of a checkpoint that takes images and sound.

transformers' own class needs `timm` for the vision tower; this class is the rest of it.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextModel

from tests.models.families.dense import SMALL, Config

TOWER: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT: dict[str, Any] = {**SMALL, "num_hidden_layers": 2}
TURNS: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}


def _qwen2_vl() -> transformers.PretrainedConfig:
    tower = {"hidden_size": 64, "embed_dim": 16, "depth": 1, "num_heads": 2, "mlp_ratio": 1}
    return transformers.Qwen2VLConfig(
        text_config={**TEXT, "rope_parameters": TURNS},
        vision_config=tower,
        architectures=["Qwen2VLForConditionalGeneration"],
    )


def _qwen3_vl() -> transformers.PretrainedConfig:
    tower = {**TOWER, "depth": 1, "num_heads": 2, "out_hidden_size": 64, "deepstack_visual_indexes": []}
    return transformers.Qwen3VLConfig(
        text_config={**TEXT, "head_dim": 16, "rope_parameters": {**TURNS, "mrope_interleaved": True}},
        vision_config=tower,
        architectures=["Qwen3VLForConditionalGeneration"],
    )


def _llava() -> transformers.PretrainedConfig:
    tower = {**TOWER, "model_type": "clip_vision_model", "image_size": 28, "patch_size": 14}
    text = transformers.LlamaConfig(**TEXT).to_dict()
    return transformers.LlavaConfig(
        text_config=text, vision_config=tower, architectures=["LlavaForConditionalGeneration"]
    )


def _smolvlm() -> transformers.PretrainedConfig:
    return transformers.SmolVLMConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config={**TOWER, "image_size": 28, "patch_size": 14},
        scale_factor=1,
        tie_word_embeddings=False,
        pad_token_id=0,
        architectures=["SmolVLMForConditionalGeneration"],
    )


def _mistral3() -> transformers.PretrainedConfig:
    tower = {**TOWER, "model_type": "pixtral", "image_size": 28, "patch_size": 14, "head_dim": 8}
    text = transformers.MistralConfig(**TEXT, head_dim=24, sliding_window=None).to_dict()
    return transformers.Mistral3Config(
        text_config=text,
        vision_config=tower,
        tie_word_embeddings=False,
        architectures=["Mistral3ForConditionalGeneration"],
    )


INSIDE: dict[str, Config] = {
    "qwen2-vl": _qwen2_vl,
    "qwen3-vl": _qwen3_vl,
    "llava": _llava,
    "smolvlm": _smolvlm,
    "mistral3-with-images": _mistral3,
}


class Gemma3nForConditionalGeneration(transformers.PreTrainedModel):
    """The model's head is the embedding."""

    config_class = transformers.Gemma3nConfig
    base_model_prefix = "model"

    def __init__(self, config: transformers.Gemma3nConfig) -> None:
        super().__init__(config)
        self.model = torch.nn.Module()
        self.model.language_model = Gemma3nTextModel._from_config(config.text_config, attn_implementation="eager")
        self.post_init()

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.language_model.embed_tokens

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Keeps the numbers that the language model has made."""

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutput:
        rows = self.model.language_model(input_ids).last_hidden_state
        logits = rows @ self.get_input_embeddings().weight.T
        cap = self.config.text_config.final_logit_softcapping
        return CausalLMOutput(logits=torch.tanh(logits / cap) * cap)
