"""Writes a checkpoint of a published shape with weights that mean nothing, in seconds: several threads write one block
of noise again and again."""

from __future__ import annotations

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.lab.bench.checkpoints import TOKENIZER_CONFIG, write_tokenizer
from twostroke.models.common.registry import read_model
from twostroke.ops.operands import f32_to_bf16
from twostroke.ops.program.model import Model

BLOCK_BYTES = 1 << 24
THREADS = 8
STD = 1.0 / 64.0
"""The standard deviation of all matrices. It fits 4,096 columns, so that activations keep their size."""


def write_any_checkpoint(config: dict[str, Any], folder: Path) -> Path:
    """Write config.json, model.safetensors (bf16) and tokenizer.json, unless the checkpoint is already finished.
    Returns the folder."""
    if (folder / "tokenizer_config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**config, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(whole))
    model = read_model(whole)
    _write_tensors(model, folder / "model.safetensors")
    write_tokenizer(folder / "tokenizer.json", model.vocab_size)
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    return folder


def _write_tensors(model: Model, path: Path) -> None:
    program = model.program
    matrices = {part.name: part.shape for weight in program.weights for part in weight.parts}
    vectors = {part.name: part.shape for vector in program.vectors for part in vector.parts}
    header: dict[str, Any] = {}
    end = 0
    for name, shape in (matrices | vectors).items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    first = 8 + len(text)
    draws = np.random.default_rng(1).standard_normal(BLOCK_BYTES // 2, np.float32) * np.float32(STD)
    noise, ones = f32_to_bf16(draws).tobytes(), f32_to_bf16(np.ones(BLOCK_BYTES // 2, np.float32)).tobytes()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.flush()
        os.truncate(file.fileno(), first + end)

        def write(piece: tuple[str, int, int]) -> None:
            name, begin, num_bytes = piece
            source = ones if name in vectors else noise
            os.pwrite(file.fileno(), memoryview(source)[:num_bytes], first + begin)

        pieces = [
            (name, at, min(BLOCK_BYTES, entry["data_offsets"][1] - at))
            for name, entry in header.items()
            for at in range(entry["data_offsets"][0], entry["data_offsets"][1], BLOCK_BYTES)
        ]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(write, pieces))
