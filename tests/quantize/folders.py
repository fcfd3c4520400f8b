"""Small folders to quantize, with random weights and spark's tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.weights.checkpoints import CONFIG, random_tensors, write
from twostroke.assets import spark_path

SMALL: dict[str, Any] = {
    **CONFIG, "vocab_size": 4096, "hidden_size": 64, "head_dim": 16, "intermediate_size": 96,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip


def small_folder(folder: Path, dtype: str = "BF16", **changes: Any) -> Path:
    """A model of two layers whose weights are so small that texts give sensible calibrations."""
    config = {**SMALL, **changes}
    tensors = {name: values * (0.1 if values.ndim == 2 else 1) for name, values in random_tensors(config).items()}
    write(folder, config, tensors, 2, dtype)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(spark_path() / name, folder / name)
    return folder
