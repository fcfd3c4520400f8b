"""Adapters of random numbers, written without PEFT."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from twostroke.ops.passes.with_adapters import linear_tensors
from twostroke.ops.program.model import Model


def write_random_lora(
    folder: Path, model: Model, endings: Iterable[str], rank: int = 4, seed: int = 1, size: float = 0.1, **config: Any
) -> Path:
    """Writes random A and B for all modules whose names have these endings. Returns the folder."""
    dice, tensors, wanted = np.random.default_rng(seed), {}, set(endings)
    for module, tensor in linear_tensors(model.plain).items():
        if module.rpartition(".")[2] in wanted:
            rows, columns = tensor.shape[::-1] if tensor.transposed else tensor.shape
            for half, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                numbers = dice.standard_normal(shape, dtype=np.float32) * np.float32(size)
                tensors[f"base_model.model.{module}.lora_{half}.weight"] = numbers
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    fields = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": sorted(wanted), **config}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    return folder
