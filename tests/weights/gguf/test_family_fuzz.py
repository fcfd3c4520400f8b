"""Files of every kind of family with keys and tensors that are wrong: one of our errors, and no memory by their word.

Families of flaws that GGUF loaders had (CVE-2024-21802, -21825, -21836, -23496, -23605, -32878, CVE-2025-49847,
-53630): counts and lengths that wrap, sizes that wrap, offsets outside, types out of range, strings longer than the
file, keys of another type than expected, sums of tensors that wrap. The container's are in test_container.py; here are
those of what keys and tensors mean.
"""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.families.whole import FAMILIES, make_checkpoint
from tests.weights.gguf import converted
from tests.weights.gguf.converted import recorded, write_converted
from tests.weights.gguf.variants import VARIANTS
from twostroke.models.common.registry import read_model
from twostroke.types.errors import ModelError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.stored import stored_formats
from twostroke.weights.tensors import check_tensors

pytestmark = pytest.mark.slow

OF_EACH_KIND = (
    "llama-yarn",
    "gpt2",
    "gpt-neox",
    "falcon-groups",
    "gpt-oss-usual-limit",
    "granite-moe",
    "deepseek-v3",
    "exaone-moe",
    "mamba2",
    "jamba",
    "nemotron-h-moe",
    "falcon-h1",
    "lfm2",
    "qwen3-next-sparse",
    "qwen3.5",
)
NUMBERS = (0, 1, 3, -1, (1 << 31) - 1)
TRIES = 6
MOST_BYTES = 64 << 20


def whole_way(path: Path) -> None:
    """All that is done before weights are read."""
    folder = unfold(path, None)
    with Checkpoint.open(folder) as checkpoint:
        model = read_model(json.loads((folder / "config.json").read_text()), stored_formats(checkpoint))
        check_tensors(checkpoint, model)


def broken(rng: np.random.Generator, keys: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """One to three keys that are gone, are another number, or of another type."""
    found = dict(keys)
    for key in rng.choice(sorted(keys), rng.integers(1, 4), replace=False).tolist():
        number, value = found[key]
        way = int(rng.integers(0, 4))
        if way == 0:
            found.pop(key)
        elif way == 1:
            found[key] = [8, "text"]
        elif way == 2 and isinstance(value, list):
            found[key] = [number, value[: len(value) // 2]]
        else:
            found[key] = [5, int(rng.choice(NUMBERS))]
    return found


@pytest.mark.parametrize("family", OF_EACH_KIND)
def test_wrong_keys(family, tmp_path, monkeypatch):
    for name, config in VARIANTS.items():
        monkeypatch.setitem(FAMILIES, name, config)
    make_checkpoint(family, tmp_path / "hf")
    said, rng = recorded(), np.random.default_rng(sum(family.encode()))
    keys = said[family]["keys"]
    for index in range(TRIES):
        changed = {**said, family: {**said[family], "keys": broken(rng, keys)}}
        monkeypatch.setattr(converted, "recorded", lambda changed=changed: changed)
        path = write_converted(family, tmp_path / "hf", tmp_path / f"{index}.gguf")
        tracemalloc.start()  # of what reads the file alone: it makes everything slow
        try:
            whole_way(path)
        except ModelError as error:
            assert error.what
        finally:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak_bytes < MOST_BYTES
        path.unlink()


@pytest.mark.parametrize("family", OF_EACH_KIND)
def test_wrong_tensors(family, tmp_path, monkeypatch):
    for name, config in VARIANTS.items():
        monkeypatch.setitem(FAMILIES, name, config)
    make_checkpoint(family, tmp_path / "hf")
    rng, sound = np.random.default_rng(sum(family.encode())), converted.tensors_of
    for index in range(TRIES):

        def bent(*asked, rng=rng):
            for name, values in sound(*asked):
                way = int(rng.integers(0, 60))
                if way == 0:
                    continue
                if way == 1:
                    values = values[..., : max(1, values.shape[-1] // 2)]
                elif way == 2:
                    values = values[: max(1, len(values) // 2)]
                elif way == 3:
                    values = values.reshape(-1)
                elif way == 4 and values.ndim < 4:
                    values = values[None]
                yield name, values

        monkeypatch.setattr(converted, "tensors_of", bent)
        path = write_converted(family, tmp_path / "hf", tmp_path / f"{index}.gguf")
        try:
            whole_way(path)
        except ModelError as error:
            assert error.what
        path.unlink()
