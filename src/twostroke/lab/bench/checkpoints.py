"""Checkpoints of real shapes with random weights. With them, speed and memory are measured without a download from a
hub."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from twostroke.lab.bench.random_tensors import Progress, write_tensors
from twostroke.models.common.registry import read_model
from twostroke.types.errors import ConfigError
from twostroke.weights.json_file import read_object

LEAST_VOCABULARY = 258

SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.2-1b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
    "qwen2.5-0.5b": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
    },
}


TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
"""The tokenizer's config. Without it other loaders guess a class by the architecture, and that class adds tokens beyond
the vocabulary."""


def read_shape(shape: str) -> dict[str, Any]:
    """Returns the config of a shape. `shape` is one of SHAPES, a config.json, or a folder that has one.

    Raises ConfigError where it is none of the three, CorruptModel where the file is broken.
    """
    if shape in SHAPES:
        return SHAPES[shape]
    path = Path(shape)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        known = ", ".join(SHAPES)
        raise ConfigError(
            f"There is no shape {shape[:80]!r}.", fix=f"Choose one of {known}, or give the path of a config.json."
        )
    return read_object(path)


def shape_folder(shape: str, cache_folder: Path) -> Path:
    """Returns the folder in which the checkpoint of a shape is kept. Raises what `read_shape` raises."""
    config = read_shape(shape)
    if shape in SHAPES:
        return cache_folder / "random" / shape
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
    return cache_folder / "random" / f"config-{digest}"


def write_checkpoint(shape: str, folder: Path, progress: Progress | None = None) -> Path:
    """Writes config.json, model.safetensors (bf16) and tokenizer files of `shape` (see `read_shape`). Returns the
    folder.

    Raises ConfigError for an unknown shape or a vocabulary that is too small, ModelError for a config that describes no
    known model. A finished checkpoint is left as it is.
    """
    config = {**read_shape(shape), "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1}
    config.pop("dtype", None)
    model = read_model(config)
    if model.vocab_size < LEAST_VOCABULARY:
        raise ConfigError(
            f"A vocabulary of {model.vocab_size} is too small for a random checkpoint.",
            fix=f"vocab_size must be at least {LEAST_VOCABULARY}: 256 bytes and two special tokens.",
        )
    if (folder / "tokenizer.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_tensors(model, folder / "model.safetensors", progress=progress)
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=2))
    write_tokenizer(folder / "tokenizer.json", model.vocab_size)
    return folder


def write_tokenizer(path: Path, vocab_size: int) -> None:
    """Writes a byte-level tokenizer: two special tokens, 256 bytes, and names of tokens that no text produces."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<s>", "</s>", *alphabet]
    words += [f"<unused{i}>" for i in range(vocab_size - len(words))]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))
