"""Tiny folders of models that see: random weights, a tokenizer of bytes, a chat template, settings of a processor.

What a judge makes here is kept (tests/kept.py): no judge is imported where it is.
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests import kept
from tests.judged import code_of

HERE = Path(__file__).parent
FAMILIES = (
    *("qwen3-vl", "qwen3-vl-moe", "qwen3.5", "qwen3.5-moe", "qwen2.5-vl", "qwen2-vl", "gemma3", "gemma3-wide"),
    *("paddleocr-vl", "glm-4v", "glm-4.5v", "glm-4.6v", "glm-ocr", "mistral3", "lighton-ocr", "pixtral", "gemma4"),
    *("gemma4-small", "gemma4-unified", "internvl", "internvl-large", "lfm2-vl", "llava-next", "llava-next-siglip"),
    *("llava-onevision", "llava-clip", "llava-siglip", "minicpm-v-4.6", "minicpm-v-4.6-4x", "minicpm-ocr"),
    *("minicpm-v-4.7", "llama4", "llama4-wide", "kimi-k2.5", "kimi-vl"),
)
"""Names of those of tests/vision/families/registry.py, which imports the judge."""
SIDE, LONGEST = 32, 96
ROWS = 4
"""The image rows of a tile."""
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
def library() -> Tokenizer:
    """Bytes, the marks and the places of tiles."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: place for place, letter in enumerate([*letters, "qz"])}
    made = Tokenizer(models.BPE(words, [("q", "z")]))  # one merge, because files of GGUF must have some
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in (*MARKS, *PLACES)])
    return made


def image_token() -> int:
    """The placeholder's id."""
    found = library().token_to_id("<image>")
    assert found is not None
    return found


def token_ids(text: str) -> list[int]:
    """The token ids of a rendered prompt."""
    return library().encode(text, add_special_tokens=False).ids


def smolvlm(folder: Path, **settings: Any) -> None:
    """Writes the folder of tests/vision/smolvlm.py. settings: settings of the processor that replace the usual ones."""

    def make(place: Path) -> dict[str, Any]:
        from tests.vision.smolvlm import make_smolvlm

        make_smolvlm(place)
        return {}

    folder.mkdir(parents=True, exist_ok=True)
    kept.made(("smolvlm", *(code_of(HERE / name) for name in ("folders.py", "smolvlm.py"))), make).unpack(folder)
    with_settings(folder, **settings)


def write_family(name: str, folder: Path) -> None:
    """Writes the folder of a family of tests/vision/families/registry.py."""

    def make(place: Path) -> dict[str, Any]:
        from tests.vision.families.registry import WRITTEN

        WRITTEN[name].write(place)
        return {}

    sources = sorted((HERE / "families").glob("*.py"))
    folder.mkdir(parents=True, exist_ok=True)
    kept.made((name, *map(code_of, sources)), make).unpack(folder)


def with_settings(folder: Path, **settings: Any) -> None:
    """The file of the processor. settings: over the usual ones."""
    (folder / "preprocessor_config.json").write_text(json.dumps({**processor_settings(), **settings}))


def processor_settings() -> dict[str, Any]:
    """The settings of the judge's processor and of the folder."""
    return {
        **{"size": {"longest_edge": LONGEST}, "max_image_size": {"longest_edge": SIDE}, "do_image_splitting": True},
        **{"image_mean": [0.5, 0.4, 0.6], "image_std": [0.5, 0.3, 0.7], "resample": 1},
    }


def processed(images: list[Image.Image], **settings: Any) -> tuple[np.ndarray, list[int], list[int]]:
    """The judge's tiles of one prompt, and rows and columns of each image."""

    def ask(folder: Path) -> dict[str, Any]:
        from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

        made = Idefics3ImageProcessorPil(**{**processor_settings(), **settings})
        found = made(images=[images], return_tensors="np", return_row_col_info=True)
        return {"pixels": found["pixel_values"], "rows": found["rows"][0], "columns": found["cols"][0]}

    facts = [(each.mode, each.size, each.tobytes(), each.getpalette(), sorted(each.info.items())) for each in images]
    found = kept.made(("processed", sorted({**processor_settings(), **settings}.items()), *facts), ask).answers()
    return found["pixels"], found["rows"].tolist(), found["columns"].tolist()


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


def user(*parts: Any) -> dict[str, Any]:
    """A message of texts and images."""
    made = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": png(part)}
        for part in parts
    ]
    return {"role": "user", "content": made}


def expected_text(rows: int, columns: int) -> str:
    """What the judge's processor writes for one image."""
    images = "<image>" * ROWS
    around = "<fake_token_around_image>"
    whole = f"{around}<global-img>{images}{around}"
    if not rows:
        return whole
    lines = ["".join(f"{around}<row_{r + 1}_col_{c + 1}>{images}" for c in range(columns)) + "\n" for r in range(rows)]
    return "".join(lines) + "\n" + whole
