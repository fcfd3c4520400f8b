"""A start of an engine from the cache of packed weights, for tests and for the processes that they start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.models.common.registry import read_model
from twostroke.types.spec.formats import BF16, WeightFormat, WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.cache import cache_entry, cached_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packed.room import KeptFolder

INT8 = WeightFormat(WeightKind.INT8, 64)


class Start:
    """One start of an engine on a folder, and what it did. config: None reads the folder's. finish: whether to wait
    until a file that this start makes has its name. limit_bytes, memory_bytes: limits of the cache."""

    def __init__(
        self,
        model: Path,
        cache: Path,
        config: dict[str, Any] | None = None,
        weight_format: WeightFormat = INT8,
        finish: bool = True,
        limit_bytes: int | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.spec = read_model(config or json.loads((model / "config.json").read_text()))
        self.choose = lambda weight: BF16 if weight.role == "embedding" else weight_format
        self.packed_bytes = 0
        self.warnings: list[str] = []
        with Checkpoint.open(model) as checkpoint:
            self.entry = cache_entry(cache, checkpoint, self.spec, self.choose)
            folder = KeptFolder(cache, limit_bytes, memory_bytes)
            loaded = cached_weights(
                folder, checkpoint, self.spec, self.choose, NumpyPacker(), self.progress, self.warnings.append
            )
        self.weights, self.file = loaded.weights, loaded.file
        if finish and self.file is not None and self.file.unfinished:
            self.file.check_all(lambda wait_s: True)

    def progress(self, done_bytes: int, total_bytes: int, name: str) -> None:
        self.packed_bytes = done_bytes


def leaves(weights: ModelWeights) -> dict[str, np.ndarray]:
    """All arrays of a model by name, with those of packed matrices one by one."""
    found: dict[str, np.ndarray] = dict(weights.vectors)
    for key, packed in weights.matrices.items():
        found[key + ".data"] = packed.data
        found.update({f"{key}.{n}": a for n in ("scales", "bias") if (a := getattr(packed, n)) is not None})
    return found
