"""Parts of random shapes, types and bytes, and configs with random members, give a ModelError or numbers, and nothing
else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lazily import torch, torch_files
from tests.weights.quantized import packers
from tests.weights.quantized.formats import WAYS
from twostroke.types.errors import ModelError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.quantized.tensor import QuantizedTensor

TRIES = 10
MODULE = "model.layers.0.mlp.up_proj"
DTYPES = ("int32", "uint8", "int8", "float16", "bfloat16", "int64", "float8_e4m3fn")
VALUES = (
    None,
    0,
    -1,
    1,
    3,
    4,
    7,
    8,
    64,
    1 << 30,
    -(1 << 62),
    1e300,
    "",
    "x",
    "re:(",
    True,
    [],
    [1, 2],
    [0, 0],
    {},
    {"a": 1},
)


def changed(rng: np.random.Generator, tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Some parts left out, cut, of other types and shapes, or with other bytes."""
    for name, values in tensors.items():
        way = rng.integers(0, 12)
        if way == 0:
            continue
        if way == 1 and values.ndim:
            values = values[tuple(slice(0, int(rng.integers(0, size + 1))) for size in values.shape)]
        elif way == 2:
            values = values.float().nan_to_num(0, 0, 0).to(getattr(torch, DTYPES[int(rng.integers(len(DTYPES)))]))
        elif way == 3:
            values = values.reshape(-1)
        elif way == 4 and values.numel():
            octets = values.contiguous().reshape(-1).view(torch.uint8).clone()
            octets[rng.integers(0, len(octets), 8)] = torch.from_numpy(rng.integers(0, 256, 8).astype(np.uint8))
            values = octets.view(values.dtype).reshape(values.shape)
        elif way == 5:
            values = values[None]
        yield name, values.contiguous().clone()


def changed_config(rng: np.random.Generator, config: dict[str, Any]) -> dict[str, Any]:
    """One member, at any depth, with another value."""
    found: dict[str, Any] = json.loads(json.dumps(config))
    place: Any = found
    while True:
        key = list(place)[int(rng.integers(len(place)))]
        if isinstance(place[key], dict) and place[key] and rng.integers(4):
            place = place[key]
            continue
        place[key] = VALUES[int(rng.integers(len(VALUES)))]
        return found


def read_all(folder: Path) -> None:
    with Checkpoint.open(folder) as checkpoint:
        for name, tensor in checkpoint.tensors.items():
            if isinstance(tensor, QuantizedTensor):
                checkpoint.read(name)
                kinds = tensor.info.kinds | tensor.ordered_kinds
                for kind in sorted(kinds)[:2]:
                    checkpoint.read_stored(name, 0, tensor.info.rows, kind)


def mutate(rng: np.random.Generator, sound: dict[str, Any], tensors: dict[str, torch.Tensor], folder: Path) -> None:
    """Reads it TRIES times, with other errors each time."""
    for _ in range(TRIES):
        config = changed_config(rng, sound) if rng.integers(2) else sound
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes(torch_files.save(dict(changed(rng, tensors))))
        try:
            read_all(folder)
        except ModelError as error:
            assert error.what


def test_stacks_of_mlx(tmp_path):
    rng, stack = np.random.default_rng(3), "model.layers.0.mlp.switch_mlp.up_proj"
    experts = [packers.mlx(rng, (64, 128), 4, 64, "float16").tensors for _ in range(3)]
    tensors = {f"{stack}.{part}": torch.stack([expert[part] for expert in experts]) for part in experts[0]}
    mutate(rng, {"quantization": {"group_size": 64, "bits": 4}}, tensors, tmp_path)


@pytest.mark.parametrize("name", WAYS)
def test_nothing_but_model_errors(name, tmp_path):
    way, rng = WAYS[name], np.random.default_rng(sum(name.encode()))
    tensors = {f"{MODULE}.{part}": values for part, values in way.pack(rng, (32, 256)).tensors.items()}
    mutate(rng, way.config, tensors, tmp_path)
