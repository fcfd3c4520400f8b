"""A tiny checkpoint of any config, made without torch: config.json and random tensors with the names of the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.lab.bench.random_tensors import write_tensors
from twostroke.models.common.registry import read_model

LIVELY_STD = 0.5
"""The standard deviation of embeddings. It spreads the logits of tiny models so far that tokens differ."""


def write_random(config: Mapping[str, Any], folder: Path) -> Path:
    """Writes the checkpoint in float32 and returns the folder."""
    (folder / "config.json").write_text(json.dumps(dict(config)))
    write_tensors(read_model(config), folder / "model.safetensors", "F32", LIVELY_STD)
    return folder
