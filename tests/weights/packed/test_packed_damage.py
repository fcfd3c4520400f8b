"""Damage in packed weights: files that were cut, changed or written by another version are never trusted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tests.weights.checkpoints import CONFIG, random_tensors, write
from tests.weights.packed.comparing import assert_equal, good_weights
from tests.weights.packed_start import Start
from twostroke.weights.packed import file as packed_file
from twostroke.weights.packed.block_sums import BLOCK_BYTES, SECTOR_BYTES, block_sums
from twostroke.weights.packed.file import map_file, open_file
from twostroke.weights.packed.header import PREAMBLE_BYTES, StaleFile, preamble


def damage_and_start(model: Path, cache: Path, content: bytes) -> Start:
    good = Start(model, cache)
    good.entry.path.write_bytes(content)
    start = Start(model, cache)
    assert_equal(start.weights, good_weights(model))
    return start


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_in_the_header_is_never_trusted(model, cache, data):
    start = Start(model, cache)
    content = bytearray(start.entry.path.read_bytes())
    header_end = PREAMBLE_BYTES + start.entry.plan.header_bytes
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, header_end - 1))
        content[place] ^= data.draw(st.integers(1, 255))
    again = damage_and_start(model, cache, bytes(content))
    changed = bytes(content) != again.entry.path.read_bytes()
    assert (again.packed_bytes > 0) == changed and bool(again.warnings) == changed


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_truncated_and_padded_files_are_rebuilt(model, cache, data):
    whole = Start(model, cache).entry.path.read_bytes()
    length = data.draw(st.integers(0, len(whole) + 5000).filter(lambda length: length != len(whole)))
    again = damage_and_start(model, cache, whole[:length] + bytes(max(0, length - len(whole))))
    assert again.packed_bytes > 0 and "made anew" in again.warnings[0]


def test_damage_in_the_first_and_last_bytes_of_each_blob_is_seen_at_start(model, cache):
    entry = Start(model, cache).entry
    whole = entry.path.read_bytes()
    for extent in entry.plan.extents:
        for place in (extent.offset, extent.offset + extent.num_bytes - 1):
            entry.path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(StaleFile, match="do not have their checksum"):
                map_file(entry.path, entry.plan)


def flip(path: Path, place: int, count: int = 1, mask: int = 16) -> None:
    """Damages bytes in place, so that the file stays the one that others have mapped."""
    with path.open("r+b") as file:
        file.seek(place)
        damaged = bytes(byte ^ mask for byte in file.read(count))
        file.seek(place)
        file.write(damaged)


GOLDEN_SUMS = ["6fc5272f73ffab9e", "5e385e39cb75de66"]
LARGE = {**CONFIG, "hidden_size": 768, "vocab_size": 2048, "intermediate_size": 1024}


def test_a_full_check_sees_damage_that_the_sample_left_out(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(packed_file, "SAMPLED_BLOCKS", 2)
    model = write(tmp_path / "model", LARGE, random_tensors(LARGE))
    entry = Start(model, cache, LARGE).entry
    assert open_file(entry.path).num_blocks > 6
    flip(entry.path, entry.plan.data_start + 3 * BLOCK_BYTES + 4099)
    file = map_file(entry.path, entry.plan)
    with pytest.raises(StaleFile, match="checksum"):
        file.check_all()
    assert file.check_all(lambda wait_s: False) is False, "nothing was compared"


def test_the_sample_finds_noise_and_the_file_is_packed_again_with_one_message(tmp_path, cache):
    model = write(tmp_path / "model", LARGE, random_tensors(LARGE))
    first = Start(model, cache, LARGE)
    flip(first.entry.path, first.entry.plan.file_bytes // 3, 200_000, 0x5A)
    again = Start(model, cache, LARGE)
    assert again.packed_bytes > 0 and len(again.warnings) == 1 and "do not have their checksum" in again.warnings[0]
    assert_equal(again.weights, Start(model, tmp_path / "other", LARGE).weights)
    assert open_file(again.entry.path).check_all()


def test_old_formats_are_packed_again_and_never_read(model, cache):
    path = Start(model, cache).entry.path
    whole = path.read_bytes()
    path.write_bytes(b"TWOSTROKE PACK 1" + whole[16:])
    again = Start(model, cache)
    assert again.packed_bytes > 0 and "it is of format 1" in again.warnings[0]
    assert path.read_bytes() == whole


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_block_sums_see_small_damage(data):
    block = np.random.default_rng(7).integers(0, 256, 3 * SECTOR_BYTES, np.uint8)
    damaged = block.copy()
    for place in data.draw(st.lists(st.integers(0, block.size - 1), min_size=1, max_size=4, unique=True)):
        damaged[place] ^= data.draw(st.integers(1, 127))
    assert block_sums(block) == block_sums(block.copy()) != block_sums(damaged)


def test_block_sums_see_sectors_that_changed_places():
    sectors = np.random.default_rng(7).integers(0, 256, (4, SECTOR_BYTES), np.uint8)
    assert block_sums(sectors.reshape(-1)) != block_sums(sectors[[1, 0, 2, 3]].reshape(-1))


def test_block_sums_are_part_of_the_format():
    """They must not change, because files of earlier releases contain them."""
    data = (np.arange(BLOCK_BYTES + SECTOR_BYTES) % 251).astype(np.uint8)
    assert block_sums(data) == GOLDEN_SUMS


def test_a_self_consistent_foreign_header_is_refused(model, cache):
    entry = Start(model, cache).entry
    whole = entry.path.read_bytes()
    header = whole[64 : 64 + entry.plan.header_bytes]
    huge = f"{2**60:016x}".encode()
    foreign = b'{"blobs":[["embedding.data","0",5]],"key":{},"sums":"%s","origin":""}' % (b"0" * 16)
    for forged in (
        header.replace(f"{entry.plan.extents[1].offset:016x}".encode(), huge),
        header.replace(b'"INT8', b'"INT4').replace(b"=INT8", b"=INT4"),
        header.replace(b'"sums":"', b'"sums":"0'),
        b"[" + b" " * (len(header) - 2) + b"]",
        foreign.ljust(len(header)),
    ):
        assert forged != header
        entry.path.write_bytes(preamble(forged, entry.plan.file_bytes) + forged + whole[64 + len(forged) :])
        with pytest.raises(StaleFile, match="another model|another form|one checksum|checksum"):
            map_file(entry.path, entry.plan)
