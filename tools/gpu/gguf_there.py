"""Writes a GGUF file of a Llama shape whose blocks mean nothing, in seconds. llama.cpp is measured with it.

    python -m tools.gpu.gguf_there 8B Q4_K_M /tmp/8B.gguf
"""

from __future__ import annotations

import math
import os
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tools.gpu.shapes import SHAPES, SMALL

F32, Q8_0, Q4_K, Q6_K = 0, 8, 12, 14
BLOCKS = {F32: (1, 4), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210)}
"""The elements and the bytes of a block of each type."""
MIXES = {"Q8_0": (Q8_0, Q8_0), "Q4_K_M": (Q4_K, Q6_K)}
"""The type of most matrices and the wider type of some, for each mix."""
ALIGNMENT, PIECES, THREADS = 32, 1 << 16, 8
SMALL_HALF = np.array([1e-4], np.float16).view(np.uint8)


def blocks_of(kind: int) -> bytes:
    """Returns PIECES blocks of random codes with small scales."""
    size = BLOCKS[kind][1]
    found = np.random.default_rng(kind).integers(0, 256, (PIECES, size), np.uint8)
    if kind == F32:
        return np.ones(PIECES, np.float32).tobytes()
    at = {Q8_0: (0,), Q4_K: (0, 2), Q6_K: (208,)}[kind]
    for first in at:
        found[:, first : first + 2] = SMALL_HALF
    return found.tobytes()


def tensors_of(config: dict[str, Any], mix: str) -> list[tuple[str, tuple[int, ...], int]]:
    """Returns the name, the sizes (the fastest first, as ggml has them) and the type of each tensor."""
    usual, wide = MIXES[mix]
    hidden, inner, layers = (config[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    found = [("token_embd.weight", (hidden, config["vocab_size"]), usual), ("output_norm.weight", (hidden,), F32)]
    found.append(("output.weight", (hidden, config["vocab_size"]), wide))
    for layer in range(layers):
        more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
        first, some = f"blk.{layer}.", wide if more else usual  # as llama.cpp's mixes choose
        found += [(f"{first}{name}_norm.weight", (hidden,), F32) for name in ("attn", "ffn")]
        found += [(f"{first}attn_{name}.weight", (hidden, hidden), usual) for name in ("q", "output")]
        found += [(f"{first}attn_k.weight", (hidden, kv), usual), (f"{first}attn_v.weight", (hidden, kv), some)]
        found += [(f"{first}ffn_{name}.weight", (hidden, inner), usual) for name in ("gate", "up")]
        found.append((f"{first}ffn_down.weight", (inner, hidden), some))
    return found


def keys_of(config: dict[str, Any], mix: str) -> dict[str, Any]:
    """Returns the metadata of the file, including a byte-level vocabulary."""
    heads = config["num_attention_heads"]
    alphabet = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256))]
    alphabet += [chr(256 + place) for place in range(256 - len(alphabet))]
    tokens = ["<s>", "</s>", *alphabet, "ab"]
    tokens += [f"<unused{place}>" for place in range(config["vocab_size"] - len(tokens))]
    return {
        "general.architecture": "llama",
        "general.name": "random",
        "general.file_type": 15 if mix == "Q4_K_M" else 7,
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.block_count": config["num_hidden_layers"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.rope.dimension_count": config["hidden_size"] // heads,
        "llama.rope.freq_base": float(config["rope_theta"]),
        "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "llama.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (config["vocab_size"] - 2)],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def _text(words: str) -> bytes:
    encoded = words.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Any) -> bytes:
    """Returns the type and the bytes of a value: uint32, float32, string, or an array of strings or of int32."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + np.array(value, np.int32).tobytes()


def write_gguf(config: dict[str, Any], mix: str, path: Path) -> Path:
    """Writes the file, unless it exists already. Returns its path."""
    if path.exists():
        return path
    tensors, keys = tensors_of(config, mix), keys_of(config, mix)
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    head += [_text(name) + _value(value) for name, value in keys.items()]
    places, end = [], 0
    for name, sizes, kind in tensors:
        elements, num_bytes = BLOCKS[kind]
        length = math.prod(sizes) // elements * num_bytes
        head.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, end))
        places.append((end, length, kind))
        end += -(-length // ALIGNMENT) * ALIGNMENT
    start = -(-sum(map(len, head)) // ALIGNMENT) * ALIGNMENT
    sources = {kind: memoryview(blocks_of(kind)) for kind in BLOCKS}
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(b"".join(head))
        file.flush()
        os.truncate(file.fileno(), start + end)

        def write(place: tuple[int, int, int]) -> None:
            at, length, kind = place
            step = len(sources[kind])
            for done in range(0, length, step):
                os.pwrite(file.fileno(), sources[kind][: min(step, length - done)], start + at + done)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(write, places))
    partial.rename(path)
    return path


if __name__ == "__main__":
    write_gguf((SHAPES | SMALL)[sys.argv[1]], sys.argv[2], Path(sys.argv[3]))
