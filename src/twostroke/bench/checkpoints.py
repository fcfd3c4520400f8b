"""Checkpoints of real shapes with random weights, for measuring speed and memory without a hub.

Knows: Hugging Face's files and shapes.
Must not know: engines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.ops.operands import f32_to_bf16
from twostroke.types.errors import ConfigError

Progress = Callable[[int, int, str], None]

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
"""Without it other loaders guess a class by the architecture, and that adds tokens beyond the vocabulary."""


def write_checkpoint(shape: str, folder: Path, progress: Progress | None = None) -> Path:
    """Write config.json, model.safetensors (bf16) and tokenizer.json of `shape`; returns the folder.

    Raises ConfigError for an unknown shape. A finished checkpoint is left as it is.
    """
    if shape not in SHAPES:
        raise ConfigError(f"There is no shape {shape!r}.", fix="Choose one of " + ", ".join(SHAPES) + ".")
    if (folder / "tokenizer.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    config = {**SHAPES[shape], "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    _write_safetensors(folder / "model.safetensors", list(_tensor_shapes(config)), progress)
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=2))
    _write_tokenizer(folder / "tokenizer.json", config["vocab_size"])
    return folder


def _tensor_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a tied Llama or Qwen2 checkpoint."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q_rows, kv_rows = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows, hidden)
            if config["model_type"] == "qwen2":
                yield f"{prefix}self_attn.{name}_proj.bias", (rows,)
        yield f"{prefix}self_attn.o_proj.weight", (hidden, q_rows)
        for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            yield f"{prefix}mlp.{name}_proj.weight", shape
        yield f"{prefix}input_layernorm.weight", (hidden,)
        yield f"{prefix}post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)


def _write_safetensors(path: Path, tensors: list[tuple[str, tuple[int, ...]]], progress: Progress | None) -> None:
    header: dict[str, Any] = {}
    offset = 0
    for name, shape in tensors:
        num_bytes = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + num_bytes]}
        offset += num_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(0)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors:
            file.write(_random_tensor(generator, name, shape).tobytes())
            if progress is not None:
                progress(header[name]["data_offsets"][1], offset, name)
    partial.rename(path)


def _random_tensor(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """bf16 bits: norms around one, matrices scaled so that activations keep their size."""
    if name.endswith("norm.weight"):
        return f32_to_bf16(np.ones(shape, np.float32))
    values = generator.standard_normal(shape, dtype=np.float32)
    values *= np.float32(0.02 if len(shape) == 1 or "embed" in name else shape[-1] ** -0.5)
    return f32_to_bf16(values)


def _write_tokenizer(path: Path, vocab_size: int) -> None:
    """A byte-level tokenizer: two special tokens, 256 bytes, and names that no text reaches."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<s>", "</s>", *alphabet]
    words += [f"<unused{i}>" for i in range(vocab_size - len(words))]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))
