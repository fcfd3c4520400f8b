"""SmolVLM tiny: transformers' model with random weights, and its folder. Importing this file imports the judge."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

from tests.vision.folders import TEMPLATE, TEXT, TOWER, image_token, library, with_settings


def make_smolvlm(folder: Path) -> torch.nn.Module:
    """Writes the folder; returns the judge."""
    config = transformers.SmolVLMConfig(
        text_config=TEXT,
        vision_config=TOWER,
        scale_factor=2,
        image_token_id=image_token(),
        tie_word_embeddings=False,
        pad_token_id=0,
        architectures=["SmolVLMForConditionalGeneration"],
    )
    torch.manual_seed(7)
    judge = transformers.SmolVLMForConditionalGeneration(config).eval().float()
    for parameter in judge.parameters():
        mean, std = (0.0, 0.2) if parameter.ndim > 1 else (0.5, 0.2)
        torch.nn.init.normal_(parameter, mean, std)
    judge.save_pretrained(folder)
    library().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end_of_utterance>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with_settings(folder)
    return judge
