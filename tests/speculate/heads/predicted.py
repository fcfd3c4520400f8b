"""Tiny checkpoints with layers that predict further tokens: a family's checkpoint, and random tensors of these
layers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from twostroke.models.common.blocks.heads.ahead import AheadProgram
from twostroke.models.common.prediction import prediction_program, read_prediction
from twostroke.models.common.registry import read_model
from twostroke.ops.program.hidden import last_hidden
from twostroke.ops.program.values import Weight
from twostroke.types.spec.fields import Fields

FILE = "model.safetensors"


def programs_of(config: Mapping[str, Any]) -> list[AheadProgram]:
    """The programs of the prediction layers, in order."""
    model = read_model(config)
    found = read_prediction(Fields(config, "config.json"))
    assert found
    tables = [call for call in model.program.body if call.NAME == "embed"]
    embedding = next(item for item in tables[0].operands() if isinstance(item, Weight))
    matrix = last_hidden(model.program).matrix
    return [prediction_program(each, model.hidden_size, embedding, matrix) for each in found]


def add_layers(folder: Path, seed: int = 1, **fields: Any) -> None:
    """Adds random tensors of the layers to the checkpoint of this folder. fields: written into config.json."""
    config = {**json.loads((folder / "config.json").read_text()), **fields}
    (folder / "config.json").write_text(json.dumps(config))
    dice, file = np.random.default_rng(seed), folder / FILE
    tensors = dict(load_file(file))
    for made in programs_of(config):
        own = [weight for weight in made.program.weights if weight not in made.shared]
        for source in (*own, *made.program.vectors):
            for part in (*source.parts, *getattr(source, "bias", ())):
                numbers = dice.normal(size=part.shape) * (0.3 if len(part.shape) == 1 else part.shape[-1] ** -0.5)
                tensors.setdefault(part.name, (numbers + _middle(part.name)).astype(np.float32))
    save_file(tensors, file, metadata={"format": "pt"})


def _middle(name: str) -> float:
    """The mean of a tensor's numbers. Norms that are not stored as w - 1 are around 1."""
    return float("norm" in name and not name.startswith("mtp."))
