"""A shard index of any kind is refused, or names files next to it that have the listed tensors, and never a file
elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.tiers import examples
from twostroke.types.errors import CorruptModel, TwostrokeError
from twostroke.weights.checkpoint import INDEX_NAME, Checkpoint

SHARDS = {"one.safetensors": ["a", "b"], "two.safetensors": ["c"]}
SOMETHING = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=8) | st.just([])
FILES = st.sampled_from([
    *SHARDS, "three.safetensors", "../secret.safetensors", "/secret.safetensors", "..", ".", "", "one.safetensors/",
    "sub/x.safetensors", "sub\\x.safetensors", "C:x.safetensors", "one.safetensors\0", ".one.safetensors",
    "\u2025/one.safetensors", "link.safetensors", "one.bin", "x" * 300 + ".safetensors",
])  # fmt: skip
TENSORS = st.sampled_from(["a", "b", "c", "d", "__metadata__", ""]) | st.text(max_size=4)
MAPS = st.dictionaries(TENSORS, FILES | SOMETHING | st.text(max_size=12).map(lambda t: t + ".safetensors"), max_size=5)
INDEXES = st.one_of(
    st.fixed_dictionaries({"weight_map": MAPS}, optional={"metadata": SOMETHING, "more": SOMETHING}),
    st.fixed_dictionaries({"weight_map": SOMETHING}),
    st.recursive(SOMETHING, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    (made / "sub").mkdir(parents=True)
    for number, (name, tensors) in enumerate(SHARDS.items()):
        save_file({tensor: np.full(2, number, np.float32) for tensor in tensors}, made / name)
    for outside in (tmp_path / "secret.safetensors", made / "sub" / "x.safetensors"):
        save_file({tensor: np.full(2, -1, np.float32) for tensor in "abcd"}, outside)
    return made


def check(folder: Path, content: bytes) -> None:
    """Only the project's errors come out. What is opened is one of the shards, and each tensor reads from there."""
    (folder / INDEX_NAME).write_bytes(content)
    try:
        checkpoint = Checkpoint.open(folder)
    except TwostrokeError as error:
        assert len(str(error)) < 2000
        return
    with checkpoint:
        assert set(checkpoint.shards) <= set(SHARDS)
        for tensor in checkpoint.names:
            number = next(i for i, tensors in enumerate(SHARDS.values()) if tensor in tensors)
            assert np.array_equal(checkpoint.read(tensor), np.full(2, number, np.float32))


COMMON: Any = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=examples(300), **COMMON)
@given(index=INDEXES)
def test_generated_indexes(folder: Path, index: Any) -> None:
    check(folder, json.dumps(index).encode())


GOOD = json.dumps({"weight_map": {t: name for name, tensors in SHARDS.items() for t in tensors}}).encode()


@settings(max_examples=examples(300), **COMMON)
@given(
    flips=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4), cut=st.integers(0, 40)
)
def test_flipped_and_cut_indexes(folder: Path, flips: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(GOOD)
    for place, value in flips:
        content[place] = value
    check(folder, bytes(content[: len(content) - cut]))


def test_the_good_one_is_good(folder: Path) -> None:
    (folder / INDEX_NAME).write_bytes(GOOD)
    with Checkpoint.open(folder) as checkpoint:
        assert checkpoint.names == {"a", "b", "c"}


@pytest.mark.parametrize("depth", [100, 200_000])
def test_a_deep_index_is_refused(folder: Path, depth: int) -> None:
    (folder / INDEX_NAME).write_bytes(b'{"weight_map":' * depth + b"1" + b"}" * depth)
    with pytest.raises(CorruptModel):
        Checkpoint.open(folder)


def test_a_shard_that_is_no_file_is_refused(folder: Path) -> None:
    (folder / "dir.safetensors").mkdir()
    (folder / INDEX_NAME).write_bytes(b'{"weight_map": {"a": "dir.safetensors"}}')
    with pytest.raises(CorruptModel, match="regular file"):
        Checkpoint.open(folder)
