"""What is read before the engine knows its model: which files, which parts of them, in which order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke import LLM
from twostroke.assembly.early.early_start import expected_files, read_early
from twostroke.assets import spark_path
from twostroke.weights.early import reading
from twostroke.weights.early.reading import (
    MOST_AT_ONCE,
    PIECE_BYTES,
    FilePart,
    begin_reading,
    missing_parts,
    read_parts,
    weight_files,
)
from twostroke.weights.early.record import FOLDER, files_of, named_model, remember


class CountedFile:
    """A file that records what is fetched. there: the numbers of pieces that are in memory. most: the most bytes of one
    call."""

    def __init__(self, num_bytes: int, there: frozenset[int] = frozenset(), most: int = 1 << 62) -> None:
        self.num_bytes, self._there, self._most = num_bytes, there, most
        self.calls: list[tuple[int, int]] = []

    def is_in_memory(self, offset: int) -> bool:
        assert 0 <= offset < self.num_bytes
        return offset // PIECE_BYTES in self._there

    def fetch(self, offset: int, num_bytes: int) -> int:
        got = min(num_bytes, self._most)
        self.calls.append((offset, got))
        return got


@given(
    st.integers(0, 40 * PIECE_BYTES), st.frozensets(st.integers(0, 40)), st.integers(PIECE_BYTES, 9 * PIECE_BYTES)
)
def test_each_missing_byte_is_read_once_in_order_and_in_large_pieces(
    num_bytes: int, there: frozenset[int], most: int
) -> None:
    file = CountedFile(num_bytes, there, most)
    parts = missing_parts(file)
    assert read_parts(file, parts) == sum(end - first for first, end in parts)
    ends = [(offset, offset + size) for offset, size in file.calls]
    assert all(end <= following for (_, end), (following, _) in zip(ends, ends[1:], strict=False)), "in order, once"
    wanted = {piece for piece in range(-(-num_bytes // PIECE_BYTES)) if piece not in there}
    assert {piece for first, end in ends for piece in range(first // PIECE_BYTES, -(-end // PIECE_BYTES))} == wanted
    short = [(first, end) for first, end in ends if end - first < PIECE_BYTES]
    assert all(end in {part.end for part in parts} for _, end in short), "only what is left of a part is shorter"


def test_a_cold_file_takes_one_call_and_a_warm_one_none() -> None:
    cold = CountedFile(40 * PIECE_BYTES + 5)
    assert missing_parts(cold) == [FilePart(0, cold.num_bytes)]
    read_parts(cold, missing_parts(cold))
    assert cold.calls == [(0, cold.num_bytes)]
    assert missing_parts(CountedFile(3 * PIECE_BYTES, frozenset(range(3)))) == []
    large = CountedFile(2 * MOST_AT_ONCE)
    read_parts(large, missing_parts(large))
    assert large.calls == [(0, MOST_AT_ONCE), (MOST_AT_ONCE, MOST_AT_ONCE)]


def test_a_system_that_reads_nothing_ends_it() -> None:
    file = CountedFile(9 * PIECE_BYTES, most=0)
    assert read_parts(file, missing_parts(file)) == 0 and len(file.calls) == 1


def test_files_are_read_in_their_order_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[tuple[str, int, int]] = []
    names: dict[int, str] = {}

    def fetch(descriptor: int, offset: int, num_bytes: int) -> int:
        fetched.append((names[os.fstat(descriptor).st_ino], offset, num_bytes))
        return num_bytes

    monkeypatch.setattr(reading.here, "is_in_memory", lambda descriptor, offset: False)
    monkeypatch.setattr(reading.here, "fetch", fetch)
    for name, size in (("b", 100), ("a", PIECE_BYTES + 1)):
        path = tmp_path / name
        path.write_bytes(bytes(size))
        names[path.stat().st_ino] = name
    paths = [str(tmp_path / name) for name in ("b", "missing", "a")]
    thread = begin_reading(paths, 1 << 40)
    assert thread is not None and thread.daemon
    thread.join()
    assert fetched == [("b", 0, 100), ("a", 0, PIECE_BYTES + 1)]
    assert begin_reading(paths, PIECE_BYTES) is None, "memory does not hold them"
    monkeypatch.setattr(reading.here, "is_in_memory", lambda descriptor, offset: True)
    assert begin_reading(paths, 1 << 40) is None and len(fetched) == 2


def test_what_was_read_is_in_memory(tmp_path: Path) -> None:
    """This holds also where this system cannot report or fetch it."""
    path = tmp_path / "x"
    path.write_bytes(bytes(100_000))
    file = reading.SystemFile(str(path))
    try:
        assert read_parts(file, [FilePart(0, 100_000)]) in (0, 100_000)
        assert missing_parts(file) == []
    finally:
        file.close()


def test_a_word_names_files_of_weights(tmp_path: Path) -> None:
    for name in ("model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors", "adapter_model.safetensors"):
        (tmp_path / name).touch()
    for name in ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "ab-00002-of-00002.gguf", "b.GGUF"):
        (tmp_path / name).touch()

    def names(word: str) -> list[str]:
        return [os.path.basename(path) for path in weight_files(word)]

    assert names(str(tmp_path)) == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    split = str(tmp_path / "a-00001-of-00002.gguf")
    assert names(split) == ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    assert names(str(tmp_path / "b.GGUF")) == ["b.GGUF"]
    assert names("spark") == names(str(tmp_path / "none.gguf")) == names("What is a gguf?") == []


def test_the_record_names_the_packed_file_as_long_as_the_sources_are_the_same(tmp_path: Path) -> None:
    source, packed, kept = tmp_path / "m.gguf", tmp_path / "m.pack", tmp_path / "cache"
    source.write_bytes(b"1")
    assert files_of(kept, str(source), None) == [str(source)], "the first start packs"
    remember(kept, str(source), "int8", packed, [source])
    assert files_of(kept, str(source), None) == [str(source)], "the packed file has no name yet"
    packed.write_bytes(b"2")
    assert files_of(kept, str(source), None) == files_of(kept, str(source), "int8") == [str(packed)]
    assert files_of(kept, str(source), "int4") == [str(source)], "this format is packed at this start"
    remember(kept, str(source), "int4", None, [source])
    assert files_of(kept, str(source), None) == [str(source)]
    assert files_of(kept, str(source), "int8") == [str(packed)]
    source.write_bytes(b"changed")
    assert files_of(kept, str(source), "int8") == [str(source)]
    assert files_of(tmp_path / "elsewhere", "org/name", None) == []


def test_a_path_is_the_same_model_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").touch()
    (tmp_path / "m.pack").touch()
    remember(tmp_path, str(tmp_path / "m.gguf"), "int8", tmp_path / "m.pack", [])
    monkeypatch.chdir(tmp_path)
    assert files_of(tmp_path, "m.gguf", None) == [str(tmp_path / "m.pack")]
    assert named_model(["--port", "8000", "m.gguf"], tmp_path) == "m.gguf"
    assert named_model(["hello", "", "--x"], tmp_path) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"model": 1}', '{"model": "org/name", "last": "int8", "starts": {"int8": {"packed": 3}}}']
    + ['{"model": "org/name", "last": "int8", "starts": {"int8": {"packed": null, "sources": [1]}}}', "[" * 100_000]
    + ['{"model": "org/name", "last": "x", "starts": {}}', '{"model": "other", "last": "x", "starts": {"x": {}}}'],
)
def test_a_broken_record_is_none(text: str, tmp_path: Path) -> None:
    remember(tmp_path, "org/name", "int8", None, [tmp_path / "w"])
    (path,) = (tmp_path / FOLDER).iterdir()
    assert files_of(tmp_path, "org/name", None) == [str(tmp_path / "w")]
    path.write_text(text)
    assert files_of(tmp_path, "org/name", None) == []
    remember(tmp_path, "org/name", "int8", None, [tmp_path / "v"])
    assert files_of(tmp_path, "org/name", None) == [str(tmp_path / "v")]


def test_a_record_is_small_and_trouble_with_it_is_no_error(tmp_path: Path) -> None:
    for number in range(40):
        remember(tmp_path, "org/name", f"format {number}", None, [])
    (path,) = (tmp_path / FOLDER).iterdir()
    assert len(json.loads(path.read_text())["starts"]) == 8
    (tmp_path / "file").touch()
    remember(tmp_path / "file", "org/name", "int8", None, [])


def test_words_of_a_command_tell_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, packed, cache = tmp_path / "m.gguf", tmp_path / "m.pack", tmp_path / "cache"
    source.touch()
    packed.touch()
    remember(cache, str(source), "int8", packed, [source])
    named = ["--model", str(source), "hello", f"--cache={cache}"]
    assert list(expected_files(named)) == [str(packed)]
    assert list(expected_files([*named, "--weights", "int4"])) == [str(source)]
    assert list(expected_files([*named, "--cache", "off"])) == [str(source)]
    monkeypatch.setenv("TWOSTROKE_CACHE", str(cache))
    assert list(expected_files([str(source)])) == [str(packed)]
    monkeypatch.setenv("TWOSTROKE_WEIGHTS", "int4")
    assert list(expected_files([str(source)])) == [str(source)]
    assert list(expected_files(["spark"])) == list(expected_files([])) == []


@pytest.mark.parametrize("words", [[], ["rm", "m.gguf"], ["plan", "m.gguf"], ["serve"], ["quantize", "m.gguf"]])
def test_verbs_that_load_nothing_read_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("twostroke.assembly.early.early_start.begin_reading", lambda *what: pytest.fail(str(what)))
    read_early(words)


@pytest.mark.parametrize(
    "words",
    [["serve", "--cache", "~nobody-has-this-name", "m.gguf"], ["serve", "m\0.gguf"], ["run", "", "\udcff", "x" * 5000]],
)
def test_words_that_mean_nothing_are_no_error(words: list[str]) -> None:
    read_early(words)


def test_a_closed_standard_stream_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """With `twostroke serve m.gguf <&-`, the next file that is opened would be standard input."""
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(1000))
    code = (
        "import os, sys\nos.close(0)\nfrom twostroke.weights.early import reading\n"
        "reading.here.is_in_memory = lambda descriptor, offset: False\n"
        "assert reading.begin_reading([sys.argv[1]], 1 << 40) is None\n"
        "assert os.open(sys.argv[1], os.O_RDONLY) == 0"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_an_engine_keeps_what_the_next_start_reads(tmp_path: Path) -> None:
    model = spark_path()
    with LLM(str(model), cache=str(tmp_path), context=64, kv_memory="8MB", weights="int8"):
        pass
    (found,) = files_of(tmp_path, str(model), None)
    assert Path(found).suffix == ".pack" and Path(found).is_file()
    assert files_of(tmp_path, str(model), "int8") == [found]
    with LLM(str(model), cache="off", context=64, kv_memory="8MB"):
        pass


def test_reading_begins_before_heavy_modules_are_imported() -> None:
    code = "import sys, twostroke.assembly.early.early_start\n"
    code += "print(sorted({'numpy', 'asyncio', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
