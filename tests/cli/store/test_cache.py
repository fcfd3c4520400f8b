"""`twostroke cache`, and what a damaged file does to `generate`, in processes as a user starts them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.weights.packed.test_packed_damage import flip
from twostroke.weights.packed.file import SAMPLED_BLOCKS, header_of, open_file

GENERATE = ("generate", "Say something.", "--max-tokens", "4", "--weights", "int8", "--threads", "1")


def twostroke(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TWOSTROKE_CACHE": str(cache)}
    command = [sys.executable, "-m", "twostroke", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def packed(cache: Path) -> Path:
    [path] = (cache / "packed").glob("*.pack")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model with a vocabulary so large that its packed file is larger than the sample of a start."""
    import numpy as np

    from tests.weights.checkpoints import read_tensors, save
    from twostroke.assets import spark_path

    folder = tmp_path_factory.mktemp("model")
    for path in spark_path().iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder / "model.safetensors")
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    rows = vocabulary + (SAMPLED_BLOCKS + 16) * 262_144 // hidden
    for name in [name for name, tensor in tensors.items() if tensor.shape[:1] == (vocabulary,)]:
        more = np.zeros((rows - vocabulary, hidden), tensors[name].dtype)
        tensors[name] = np.concatenate([tensors[name], more])
    save(folder / "model.safetensors", tensors, "BF16")
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))
    assert np.isfinite(rows)
    return folder


@pytest.fixture(scope="module")
def after_a_start(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder after a start. Weights are packed once for all tests."""
    folder = tmp_path_factory.mktemp("cache")
    first = twostroke(*GENERATE, "--model", str(model), cache=folder)
    assert first.returncode == 0, first.stderr
    return folder


@pytest.fixture
def cache(after_a_start: Path, tmp_path: Path) -> Path:
    return shutil.copytree(after_a_start, tmp_path / "cache")


def unsampled(path: Path) -> int:
    """A place in a block that no start reads."""
    file = open_file(path)
    last, steps = file.num_blocks - 1, SAMPLED_BLOCKS - 1
    seen = {last * step // steps for step in range(SAMPLED_BLOCKS)}
    block = next(place for place in range(file.num_blocks) if place not in seen)
    return file.header.data_start + block * 262_144 + 5


def listed(cache: Path) -> list[dict[str, Any]]:
    found = twostroke("cache", "list", "--json", cache=cache)
    assert found.returncode == 0, found.stderr
    files: list[dict[str, Any]] = json.loads(found.stdout)["files"]
    return files


def test_files_are_listed_verified_and_removed(cache: Path, model: Path) -> None:
    [file] = listed(cache)
    assert (file["model"], file["state"], file["bytes"]) == (str(model), "unchecked", packed(cache).stat().st_size)
    assert "INT8" in file["formats"] and file["in_use"] is False and file["used"].startswith("20")
    whole = twostroke("cache", "verify", file["name"][:6], cache=cache)
    assert whole.returncode == 0 and "whole" in whole.stdout
    flip(packed(cache), unsampled(packed(cache)))
    damaged = twostroke("cache", "verify", "--json", cache=cache)
    assert damaged.returncode == 3 and "cache rm --unusable" in damaged.stderr
    assert json.loads(damaged.stdout)["files"][0]["state"] == "unusable"
    (cache / "packed" / "old.pack").write_bytes(b"TWOSTROKE PACK 1" + bytes(100))
    removed = twostroke("cache", "rm", "--unusable", "--json", cache=cache)
    assert removed.returncode == 0 and len(json.loads(removed.stdout)["removed"]) == 2
    assert listed(cache) == []


@pytest.mark.parametrize("words", [("cache", "rm"), ("cache", "rm", "x", "--all"), ("cache", "verify", "nothing")])
def test_what_is_not_clear_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    found = twostroke(*words, cache=tmp_path)
    assert found.returncode == 2 and found.stderr.startswith("error: ")


def test_all_files_or_one_of_a_model_are_removed(cache: Path, model: Path) -> None:
    assert twostroke("cache", "rm", str(model), cache=cache).returncode == 0
    assert listed(cache) == []
    assert twostroke("cache", "rm", "--all", cache=cache).returncode == 0


def test_no_exit_code_0_from_damaged_weights(cache: Path, model: Path) -> None:
    """The reported case: noise outside the start's sample changed the answer, and no error was printed."""
    path = packed(cache)
    before = header_of(path)
    flip(path, unsampled(path))
    damaged = twostroke(*GENERATE, "--model", str(model), cache=cache)
    assert damaged.returncode == 6 and "packed weights of this model are damaged" in damaged.stderr
    assert not path.exists()
    again = twostroke(*GENERATE, "--model", str(model), cache=cache)
    assert again.returncode == 0 and "damaged" not in again.stderr
    assert header_of(path) == before
