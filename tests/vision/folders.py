"""Tiny folders of models that see images: random weights, a tokenizer of bytes, a chat template, settings of a
processor."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

SIDE, LONGEST = 32, 96
TEXT: dict[str, Any] = {
    **{"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "model_type": "llama"},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024},
}
TOWER: dict[str, Any] = {
    **{"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 2},
    **{"image_size": SIDE, "patch_size": 8},
}
MARKS = ["<fake_token_around_image>", "<image>", "<global-img>", "<end_of_utterance>", "<|im_start|>"]
PLACES = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""As in SmolVLM's template, a content is a list of parts."""


@cache
def _library() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: place for place, letter in enumerate([*letters, "qz"])}
    made = Tokenizer(models.BPE(words, [("q", "z")]))  # one merge, because files of GGUF must have some
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in (*MARKS, *PLACES)])
    return made


def image_token() -> int:
    """The placeholder's id."""
    found = _library().token_to_id("<image>")
    assert found is not None
    return found


def token_ids(text: str) -> list[int]:
    """The token ids of a rendered prompt."""
    return _library().encode(text, add_special_tokens=False).ids


def smolvlm(folder: Path, **settings: Any) -> torch.nn.Module:
    """Writes the folder and returns the judge. settings: settings of the processor that replace the usual ones."""
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
    _library().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end_of_utterance>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "preprocessor_config.json").write_text(json.dumps({**processor_settings(), **settings}))
    return judge


def processor_settings() -> dict[str, Any]:
    """The settings of the judge's processor and of the folder."""
    return {
        **{"size": {"longest_edge": LONGEST}, "max_image_size": {"longest_edge": SIDE}, "do_image_splitting": True},
        **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "resample": 1},
    }


def processed(images: list[Image.Image], **settings: Any) -> tuple[np.ndarray, list[int], list[int]]:
    """The judge's tiles of one prompt, and rows and columns of each image."""
    made = Idefics3ImageProcessorPil(**{**processor_settings(), **settings})
    found = made(images=[images], return_tensors="np", return_row_col_info=True)
    return found["pixel_values"], found["rows"][0], found["cols"][0]


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth colours with noise."""
    rng = np.random.default_rng([width, height, seed])
    waves = np.linspace(0, 5 + seed, width)[None, :, None] + np.linspace(0, 3, height)[:, None, None] * [1, 2, 3]
    pixels = 127 + 90 * np.sin(waves) + rng.integers(-30, 30, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def png(image: Image.Image) -> bytes:
    """The image as a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
