"""A start that packs reads each byte of a checkpoint at most once, and reads its file forwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.weights.checkpoints import CONFIG, random_tensors, write
from tests.weights.gguf.export import write_gguf
from tests.weights.packed_start import Start, leaves
from twostroke import LLM
from twostroke.assets import spark_path
from twostroke.system import linux
from twostroke.weights.open_file import OpenFile

Read = tuple[int, int]
"""The first byte and the end."""
LAYERS = {**CONFIG, "num_hidden_layers": 12}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """What is read of tensors, in order."""
    found: list[Read] = []
    read_into = OpenFile._read_into

    def watched(self: OpenFile, target: NDArray[Any], offset: int, name: str) -> None:
        found.append((offset, offset + target.nbytes))
        read_into(self, target, offset, name)

    monkeypatch.setattr(OpenFile, "_read_into", watched)
    return found


def twice(reads: list[Read]) -> int:
    """The bytes that were read again."""
    count = end = 0
    for first, last in sorted(reads):
        count += max(0, min(last, end) - first)
        end = max(end, last)
    return count


def farthest_back(reads: list[Read]) -> int:
    """The most bytes from the end of one read back to the beginning of the next."""
    most = end = 0
    for first, last in reads:
        most, end = max(most, end - first), max(end, last)
    return most


def test_a_file_is_read_forwards_and_once_whatever_the_order_of_layers_is(tmp_path: Path, reads: list[Read]) -> None:
    """Names are sorted in the file, so layer 10 comes before layer 2."""
    tensors = random_tensors(LAYERS)
    model = write(tmp_path / "model", LAYERS, tensors)
    one = Start(model, tmp_path / "cache", LAYERS)
    names = [name for name in tensors if "proj" in name or "embed" in name or "lm_head" in name]
    layer_bytes = 4 * sum(tensors[name].size for name in names if ".layers.3." in name)
    matrices = [read for read in reads if read[1] - read[0] > 4 * LAYERS["hidden_size"]]
    assert len(matrices) >= len(names) - 4 and twice(reads) == 0
    assert farthest_back(matrices) <= layer_bytes
    several = Start(write(tmp_path / "shards", LAYERS, tensors, shards=3), tmp_path / "other", LAYERS)
    first, second = leaves(one.weights), leaves(several.weights)
    assert first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def test_a_gguf_file_is_read_once(tmp_path: Path, reads: list[Read]) -> None:
    bare = shutil.copytree(spark_path(), tmp_path / "bare", ignore=shutil.ignore_patterns("chat_template.jinja"))
    path = write_gguf(bare, tmp_path / "spark.gguf", "llama")
    with LLM(str(path), cache=str(tmp_path / "cache"), context=64, kv_memory="8MB"):
        pass
    assert twice(reads) == 0 and sum(end - first for first, end in reads) > path.stat().st_size // 2
    reads.clear()
    with LLM(str(path), cache=str(tmp_path / "cache"), context=64, kv_memory="8MB"):
        pass
    assert reads == [], "the packed file is mapped"


@pytest.mark.skipif(not hasattr(linux.os, "posix_fadvise"), reason="Linux alone has the call")
def test_the_system_is_asked_for_all_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fetches no more for one call than it reads ahead."""
    asked: list[Read] = []
    monkeypatch.setattr(linux.os, "posix_fadvise", lambda fd, first, size, how: asked.append((first, first + size)))
    linux.fetch_ahead(0, 1000, (1 << 20) + 1)
    assert asked[0][0] == 1000 and asked[-1][1] == 1000 + (1 << 20) + 1
    assert all(end == following for (_, end), (following, _) in zip(asked, asked[1:], strict=False))
    assert max(end - first for first, end in asked) <= 128 << 10
