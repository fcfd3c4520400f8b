"""The cache of packed weights: bit-exact, never trusted, safe with crashes, full disks and concurrent starts."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from tests.weights.checkpoints import CONFIG, QWEN2, QWEN3, random_tensors, write
from tests.weights.packed.comparing import assert_equal, good_weights
from tests.weights.packed_start import INT8, Start, leaves
from twostroke.models.common.blocks import attend
from twostroke.types.errors import CorruptModel
from twostroke.types.spec.formats import BF16, F32, WeightFormat, WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed import cache as packed_cache
from twostroke.weights.packed import file as packed_file
from twostroke.weights.packed.block_sums import BLOCK_BYTES
from twostroke.weights.packed.file import header_of, map_file, open_file
from twostroke.weights.packed.fingerprint import fingerprint
from twostroke.weights.packed.fresh_file import PackedImage
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packed.writeback import begin_writing

ROOT = Path(__file__).resolve().parents[3]
INT4 = WeightFormat(WeightKind.INT4, 64)


@pytest.mark.parametrize("weight_format", [F32, BF16, INT8, INT4], ids=["f32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("config", [CONFIG, QWEN2, QWEN3], ids=["llama", "qwen2", "qwen3"])
def test_memory_first_and_second_start_are_bit_exact(config, weight_format, tmp_path, cache):
    model = write(tmp_path / "model", config, random_tensors(config, "BF16"), shards=2, dtype="BF16")
    first, second = (Start(model, cache, config, weight_format) for _ in range(2))
    assert first.packed_bytes > 0 and second.packed_bytes == 0
    assert not first.warnings and not second.warnings
    with Checkpoint.open(model) as checkpoint:
        in_memory = load_weights(checkpoint, first.spec, first.choose, NumpyPacker())
    assert_equal(first.weights, in_memory)
    assert_equal(second.weights, in_memory)
    for array in leaves(second.weights).values():
        assert not array.flags.writeable and array.ctypes.data % 64 == 0
    assert ("lm_head:head" in second.weights.matrices) != config["tie_word_embeddings"]
    assert open_file(first.entry.path).check_all() and header_of(first.entry.path).origin == str(model)
    assert [path.suffix for path in cache.iterdir()] == [".pack"]


def test_formats_and_edits_have_files_of_their_own(model, cache):
    paths = {Start(model, cache).entry.path, Start(model, cache, weight_format=INT4).entry.path}
    os.utime(model / "model.safetensors", ns=(1, 1))
    paths.add(Start(model, cache).entry.path)
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    paths.add(Start(model, cache).entry.path)
    assert len(paths) == 4


def test_fingerprint_sees_one_changed_block_under_an_old_time(tmp_path):
    tensors = random_tensors(CONFIG)
    prints = set()
    for value in (0.0, 1.0):
        tensors["model.embed_tokens.weight"][0, 0] = value
        folder = write(tmp_path, CONFIG, tensors)
        os.utime(folder / "model.safetensors", ns=(1, 1))
        with Checkpoint.open(folder) as checkpoint:
            prints.add(fingerprint(checkpoint))
    assert len(prints) == 2


def test_a_new_layout_does_not_read_old_files(model, cache, monkeypatch):
    old = Start(model, cache).entry
    monkeypatch.setattr(packed_cache, "LAYOUT", "next")
    new = Start(model, cache)
    assert new.entry.path != old.path and new.packed_bytes > 0
    assert len(new.warnings) == 1 and str(old.path) in new.warnings[0] and "packed anew" in new.warnings[0]
    shutil.copy(old.path, new.entry.path)
    again = Start(model, cache)
    assert again.packed_bytes > 0 and "made anew" in again.warnings[0]


def test_a_full_disk_falls_back_to_memory(model, cache, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(0, 0, 1000))
    start = Start(model, cache)
    assert "0.00 GB are free" in start.warnings[0] and "into memory" in start.warnings[0]
    monkeypatch.undo()
    assert not list(cache.iterdir())
    assert_equal(start.weights, good_weights(model))


def test_a_disk_that_fills_up_while_packing(model, cache, monkeypatch):
    written = []

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        written.append(len(data))
        if sum(written) > 20_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    start = Start(model, cache)
    monkeypatch.undo()
    assert "No space left on device" in start.warnings[0]
    assert not list(cache.iterdir())
    assert_equal(start.weights, good_weights(model))


def test_weights_are_used_before_their_file_has_a_name(model, cache):
    first = Start(model, cache, finish=False)
    assert [path.suffix for path in cache.iterdir()] == [".partial"] and not first.warnings
    assert_equal(first.weights, good_weights(model))
    assert Start(model, cache, finish=False).packed_bytes > 0, "another start packs for itself"
    first.file.check_all()
    assert first.entry.path.exists() and map_file(first.entry.path, first.entry.plan).check_all()
    first.file.discard()
    first.file.close()
    second = Start(model, cache)
    assert second.packed_bytes == 0
    assert_equal(first.weights, second.weights)


def test_a_disk_that_refuses_what_was_packed(model, cache, monkeypatch):
    first = Start(model, cache, finish=False)

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    first.file.check_all()
    assert "cannot be kept" in first.warnings[0] and "Input/output error. The next start" in first.warnings[0]
    assert not list(cache.iterdir())
    first.file.close()
    assert len(first.warnings) == 1
    assert_equal(first.weights, good_weights(model))


def test_a_folder_that_cannot_be_made(model, tmp_path):
    (tmp_path / "file").touch()
    start = Start(model, tmp_path / "file" / "cache")
    assert "cannot be kept" in start.warnings[0]
    assert_equal(start.weights, good_weights(model))


def test_something_else_under_the_name(model, cache):
    path = Start(model, cache).entry.path
    path.unlink()
    path.mkdir()
    start = Start(model, cache)
    assert len(start.warnings) == 2
    assert_equal(start.weights, good_weights(model))


def test_a_broken_checkpoint_leaves_nothing_behind(tmp_path, cache):
    tensors = random_tensors(CONFIG)
    tensors["lm_head.weight"][0] = float("nan")
    model = write(tmp_path / "model", CONFIG, tensors)
    with pytest.raises(CorruptModel):
        Start(model, cache)
    assert not list(cache.iterdir())


def test_partial_files_of_dead_writers_are_swept_and_those_of_living_ones_stay(model, cache):
    cache.mkdir()
    (cache / "dead.pack.x.partial").write_bytes(b"x")
    entry = Start(model, cache.parent / "elsewhere").entry
    with packed_file.new_file(cache / "alive.pack", entry.plan):
        Start(model, cache)
        names = {path.name.split(".")[0] for path in cache.iterdir() if path.suffix == ".partial"}
        assert names == {"alive"}
    assert not list(cache.glob("*.partial"))


def test_unfilled_blobs_never_become_a_file(model, cache):
    plan = Start(model, cache).entry.plan
    extent = plan.extents[0]
    with pytest.raises(ValueError, match="were filled"):
        PackedImage(plan).require_filled()
    with pytest.raises(ValueError, match="out of order"):
        PackedImage(plan).area(extent.key, 64, 64)
    with pytest.raises(ValueError, match="too many"):
        PackedImage(plan).area(extent.key, 0, extent.num_bytes + 64)
    other = cache / "other.pack"
    with pytest.raises(ValueError, match="are planned"), packed_file.new_file(other, plan) as partial:
        partial.finish(np.zeros(plan.file_bytes - 1, np.uint8))
    assert not other.exists() and not list(cache.glob("*.partial"))


def test_writing_waits_nine_times_as_long_as_it_takes(model, cache, monkeypatch):
    monkeypatch.setattr(packed_file, "WRITE_BYTES", BLOCK_BYTES)
    waits: list[float] = []
    start = Start(model, cache, finish=False)
    start.file.check_all(lambda wait_s: waits.append(wait_s) or False)
    assert len(waits) == -(-start.entry.plan.file_bytes // BLOCK_BYTES) and min(waits) > 0
    assert map_file(start.entry.path, start.entry.plan).check_all(), "it is written to its end"


def test_weights_beyond_the_memory_are_packed_straight_into_their_file(model, cache, monkeypatch):
    start = Start(model, cache, finish=False, memory_bytes=1000)
    assert packed_file.unwritten_bytes(cache) == 0, "the room is taken"
    assert_equal(start.weights, good_weights(model))
    start.file.check_all()
    start.file.close()
    second = Start(model, cache)
    assert second.packed_bytes == 0 and second.file.check_all()
    assert_equal(second.weights, start.weights)

    def full(descriptor: int, first: int, count: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    third = Start(model, cache.with_name("full"), memory_bytes=1000)
    assert third.file is None and "No space left on device" in third.warnings[0]
    assert_equal(third.weights, start.weights)


def test_a_file_that_is_given_up_is_not_written_on(model, cache, monkeypatch):
    start = Start(model, cache, finish=False)
    start.file.discard()
    monkeypatch.setattr(os, "pwrite", lambda *arguments: pytest.fail("it is written"))
    start.file.close()
    monkeypatch.undo()
    assert not list(cache.iterdir()) and not start.warnings
    assert_equal(start.weights, good_weights(model))


def test_what_others_have_still_to_write_is_no_room(model, cache, monkeypatch):
    usage = namedtuple("usage", "total used free")
    first = Start(model, cache, finish=False)
    num_bytes = first.entry.plan.file_bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(0, 0, num_bytes * 3 // 2))
    second = Start(model, cache, finish=False)
    assert second.file is None and "are free" in second.warnings[0]
    first.file.check_all()
    assert packed_file.unwritten_bytes(cache) == 0
    assert_equal(second.weights, good_weights(model))


CHILD = """
import sys, hashlib
from pathlib import Path
from tests.weights.packed_start import Start, leaves
from twostroke.weights.packed import room
room.KEPT_FREE_BYTES = 0
start = Start(Path(sys.argv[1]), Path(sys.argv[2]))
digest = hashlib.sha256()
for key, array in sorted(leaves(start.weights).items()):
    digest.update(key.encode() + array.tobytes())
print(digest.hexdigest(), len(start.warnings))
"""


def test_two_processes_that_start_at_once(model, cache):
    command = [sys.executable, "-c", CHILD, str(model), str(cache)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
    outputs = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert len(set(outputs)) == 1 and outputs[0].endswith(" 0\n")
    assert [path.suffix for path in cache.iterdir()] == [".pack"]


def test_a_replaced_file_leaves_older_mappings_alone(model, cache):
    first = Start(model, cache)
    before = {key: array.copy() for key, array in leaves(first.weights).items()}
    with packed_file.new_file(first.entry.path, first.entry.plan) as partial:
        partial.finish(np.full(first.entry.plan.file_bytes, 7, np.uint8))
    for key, array in leaves(first.weights).items():
        assert np.array_equal(array, before[key])


def test_writing_that_cannot_begin_early_is_no_error() -> None:
    begin_writing(-1, 0, 4096)


def test_other_numbers_of_the_program_have_files_of_their_own(tmp_path, cache, monkeypatch):
    """The shift of biased keys lies in the packed file, and follows from a constant of this program."""
    folder = write(tmp_path / "model", QWEN2, random_tensors(QWEN2))
    first = Start(folder, cache)
    assert Start(folder, cache).entry == first.entry
    monkeypatch.setattr(attend, "MEAN_POSITIONS", 7)
    second = Start(folder, cache)
    assert second.entry.path != first.entry.path and second.packed_bytes > 0
    shifts = [
        {name: array for name, array in leaves(each.weights).items() if "k_proj.bias" in name}
        for each in (first, second)
    ]
    assert shifts[0] and any(not np.array_equal(array, shifts[1][name]) for name, array in shifts[0].items())
