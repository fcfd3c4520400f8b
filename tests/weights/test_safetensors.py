"""The safetensors reader with files of the library that defines the format, and with damaged headers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tests.weights.checkpoints import save
from twostroke.types.errors import CorruptModel
from twostroke.weights.safetensors import DTYPE_BITS, SafetensorsFile

TENSORS = {
    "a": np.arange(35, dtype=np.float32).reshape(5, 7) / 3,
    "b": np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7,
    "c": (np.arange(9) / 9).astype(np.float16),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5, np.float32),
    "ids": np.arange(4),
}
STORED = {"b": "BF16", "c": "F16"}
"""Types of those that are not float32."""


def raw_file(path: Path, header: bytes, data: bytes) -> Path:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def header_of(members: Any) -> bytes:
    return json.dumps(members).encode()


def test_reads_what_the_library_wrote(tmp_path):
    save(tmp_path / "x.safetensors", TENSORS, STORED)
    file = SafetensorsFile.open(tmp_path / "x.safetensors")
    assert set(file.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert file.tensors[name].shape == tensor.shape
    assert np.array_equal(file.read("a"), TENSORS["a"])
    bits = TENSORS["b"].view(np.uint32)  # these are of float32, whose upper half is rounded to even
    assert np.array_equal(file.read("b"), (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    c = file.read("c")
    assert c.dtype == np.float32 and np.array_equal(c, TENSORS["c"].astype(np.float32))
    assert file.read("empty").shape == (0, 3)
    assert file.read("scalar").shape == () and file.read("scalar") == 2.5
    assert file.read("ids").dtype == np.float32 and np.array_equal(file.read("ids"), TENSORS["ids"])
    file.close()


def test_rows_and_targets(tmp_path):
    save(tmp_path / "x.safetensors", TENSORS, STORED)
    file = SafetensorsFile.open(tmp_path / "x.safetensors")
    assert np.array_equal(file.read_rows("a", 2, 2), TENSORS["a"][2:4])
    assert file.read_rows("a", 5, 0).shape == (0, 7)
    out = np.zeros((3, 7), np.float32)
    assert file.read_rows("a", 1, 3, out=out) is out and np.array_equal(out, TENSORS["a"][1:4])
    halves = np.zeros(4, np.float32)
    file.read_rows("c", 5, 4, out=halves)
    assert np.array_equal(halves, TENSORS["c"][5:].astype(np.float32))
    for first, count in ((-1, 2), (0, 6), (5, 1), (0, -1)):
        with pytest.raises(IndexError):
            file.read_rows("a", first, count)
    for target in (np.zeros(20, np.float32), np.zeros(21, np.uint16), np.zeros((7, 3), np.float32).T):
        with pytest.raises(ValueError, match="contiguous"):
            file.read_rows("a", 1, 3, out=target)
    file.close()


def test_a_file_that_shrinks_is_an_error_not_a_signal(tmp_path):
    path = tmp_path / "x.safetensors"
    save(path, {"a": np.zeros(1000, np.float32)})
    file = SafetensorsFile.open(path)
    os.truncate(path, 500)
    with pytest.raises(CorruptModel, match="ends inside tensor a"):
        file.read("a")
    file.close()


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data_bytes", "words"),
    [
        (header_of([]), 0, "JSON object"),
        (b"{ ", 0, "JSON"),
        (b'{"a": 1, "a": 2}', 0, "twice"),
        (b'{"\xff": 1}', 0, "JSON"),
        (b"{" + b'"a":[' * 100_000, 0, "JSON"),
        (b'{"a": NaN}', 0, "NaN"),
        (b" {}", 0, "JSON object"),
        (header_of({"__metadata__": {"a": 1}}), 0, "__metadata__"),
        (header_of({"__metadata__": []}), 0, "__metadata__"),
        (header_of({"a": 5}), 0, "must have dtype"),
        (header_of({"a": {**GOOD, "more": 1}}), 8, "must have dtype"),
        (header_of({"a": {**GOOD, "dtype": "F31"}}), 8, "unknown dtype"),
        (header_of({"a": {**GOOD, "dtype": ["F32"]}}), 8, "unknown dtype"),
        (header_of({"a": {**GOOD, "shape": [-2]}}), 8, "shape"),
        (header_of({"a": {**GOOD, "shape": [2.0]}}), 8, "shape"),
        (header_of({"a": {**GOOD, "shape": [True, 2]}}), 8, "shape"),
        (header_of({"a": {**GOOD, "shape": [2] + [1] * 8}}), 8, "shape"),
        (header_of({"a": {**GOOD, "shape": [2**64, 2**64]}}), 8, "shape"),
        (header_of({"a": {**GOOD, "shape": [2**32, 2**32]}}), 8, "does not take"),
        (header_of({"a": {**GOOD, "shape": 2}}), 8, "shape"),
        (header_of({"a": {**GOOD, "data_offsets": [8, 0]}}), 8, "offsets"),
        (header_of({"a": {**GOOD, "data_offsets": [0]}}), 8, "offsets"),
        (header_of({"a": {**GOOD, "data_offsets": [-8, 0]}}), 8, "offsets"),
        (header_of({"a": {**GOOD, "data_offsets": [4, 12]}}), 12, "expected"),
        (header_of({"a": GOOD}), 4, "end at byte"),
        (header_of({"a": GOOD}), 9, "end at byte"),
        (header_of({"a": GOOD, "b": GOOD}), 8, "expected"),
        (header_of({"a": GOOD, "b": {**GOOD, "data_offsets": [12, 20]}}), 20, "expected"),
        (header_of({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}), 1, "does not take"),
        (header_of({f"t{i}": {**GOOD, "shape": [0], "data_offsets": [0, 0]} for i in range(70_000)}), 0, "70,000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_mutilated_headers_are_refused(header, data_bytes, words, tmp_path):
    with pytest.raises(CorruptModel, match=words) as caught:
        SafetensorsFile.open(raw_file(tmp_path / "x.safetensors", header, bytes(data_bytes)))
    assert len(str(caught.value)) < 1000 and caught.value.fix


@pytest.mark.parametrize("length", [0, 1, 100, 10**8 + 1, 2**63, 2**64 - 1])
def test_impossible_header_lengths_are_refused(length, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(CorruptModel, match="header claims"):
        SafetensorsFile.open(path)


@pytest.mark.parametrize("content", [b"", b"\x02\x00", b"\x02" + bytes(7)])
def test_stumps_are_refused(content, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CorruptModel):
        SafetensorsFile.open(path)


def test_pipes_folders_and_missing_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing"):
        with pytest.raises(CorruptModel):
            SafetensorsFile.open(tmp_path / name)


def test_zero_sized_tensors_may_share_an_offset(tmp_path):
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [8, 8]}
    path = raw_file(tmp_path / "x.safetensors", header_of({"e": empty, "a": GOOD, "f": empty}), bytes(8))
    assert len(SafetensorsFile.open(path).tensors) == 3


BASE = header_of({
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
})  # fmt: skip
SOMETHING = st.none() | st.booleans() | st.integers(-5, 2**66) | st.floats() | st.text(max_size=5) | st.just([])
MEMBERS = st.dictionaries(
    st.text(max_size=3) | st.just("__metadata__"),
    st.fixed_dictionaries({
        "dtype": st.sampled_from([*DTYPE_BITS, "F33"]) | SOMETHING,
        "shape": st.lists(st.integers(-1, 5) | st.integers(0, 2**66), max_size=4) | SOMETHING,
        "data_offsets": st.lists(st.integers(-1, 40) | st.integers(0, 2**66), min_size=1, max_size=3) | SOMETHING,
    }) | SOMETHING,
    max_size=4,
)  # fmt: skip


def open_and_read_everything(path: Path) -> None:
    """Only CorruptModel comes out, and whatever is accepted lies inside the file and can be read."""
    size = path.stat().st_size
    try:
        file = SafetensorsFile.open(path)
    except CorruptModel:
        return
    for name, info in file.tensors.items():
        assert 0 <= info.offset and info.offset + info.num_bytes <= size
        if info.dtype in ("F32", "BF16", "F16"):
            assert file.read(name).shape == info.shape
    file.close()
    with safetensors.safe_open(path, "np") as judge:
        assert set(judge.keys()) == set(file.tensors)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, len(BASE) + 8 + 32 - 1), st.integers(0, 255)), max_size=4), st.integers(-40, 40)
)
def test_flipped_bytes_and_lengths(tmp_path, flips, longer):
    content = bytearray(len(BASE).to_bytes(8, "little") + BASE + bytes(32))
    for place, value in flips:
        content[place] = value
    path = tmp_path / "x.safetensors"
    path.write_bytes(bytes(content[: len(content) + longer]) + bytes(max(0, longer)))
    open_and_read_everything(path)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MEMBERS, st.integers(0, 64))
def test_generated_headers(tmp_path, members, data_bytes):
    open_and_read_everything(raw_file(tmp_path / "x.safetensors", header_of(members), bytes(data_bytes)))
