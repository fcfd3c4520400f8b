"""The GGUF reader with files of the package's writer, and with files whose contents contradict each other."""

from __future__ import annotations

import os
import struct
import tracemalloc
from contextlib import closing
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tests.weights.gguf.files import array, info, number, raw, string, strings, text, write
from twostroke.types.errors import CorruptModel, ModelError, UnsupportedModel
from twostroke.weights.gguf import header
from twostroke.weights.gguf.container import GgufFile, open_split
from twostroke.weights.gguf.header import MAX_STRINGS, strings_within

F32, Q8_0 = 0, 8
HUGE = (1 << 64) - 1
ONE = info("a", [4], F32, 0)


def opened(tmp_path: Path, data: bytes) -> GgufFile:
    return GgufFile.open(write(tmp_path / "x.gguf", data))


def test_reads_what_the_package_wrote(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("yes", True)
    writer.add_int64("less", -5)
    writer.add_float64("wide", 1.5)
    writer.add_string("general.name", "Größe")
    writer.add_array("tokens", ["a", "ä", ""])
    writer.add_array("scores", [1.0, -2.0])
    writer.add_array("types", [1, 2, 3])
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = np.arange(128, dtype=np.float32).reshape(2, 64)
    writer.add_tensor("a", a)
    writer.add_tensor(
        "b", gguf.quants.quantize(b, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile.open(tmp_path / "x.gguf")
    values = dict(file.values)
    assert values["general.architecture"] == "llama" and values["general.name"] == "Größe"
    assert (values["llama.block_count"], values["llama.eps"], values["less"], values["wide"]) == (2, 0.5, -5, 1.5)
    assert values["yes"] is True and list(values["tokens"]) == [b"a", "ä".encode(), b""]
    assert list(values["scores"]) == [1.0, -2.0] and list(values["types"]) == [1, 2, 3]
    assert file.tensors["a"].shape == (3, 4) and file.tensors["b"].shape == (2, 64)
    assert np.array_equal(file.read_blocks("a", 1, 2).view(np.float32), a[1:])
    assert file.read_blocks("b", 0, 2).shape == (2, 68)
    for first, count in ((-1, 1), (0, 4), (3, 1), (0, -1)):
        with pytest.raises(IndexError):
            file.read_blocks("a", first, count)
    file.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "letters GGUF"),
        (b"GGUF", "letters GGUF"),
        (raw(magic=b"GGML"), "letters GGUF"),
        (raw(num_tensors=HUGE), "claims 18,446,744,073,709,551,615 tensors"),
        (raw(num_tensors=60_000), "claims 60,000 tensors"),
        (raw(num_keys=HUGE), "keys"),
        (raw(num_keys=3), "keys"),
        (raw([("k", string("v"))] * 2), "twice"),
        (raw([(b"\xff", string("v"))]), "not UTF-8"),
        (raw([("k", struct.pack("<I", 99))], data=bytes(64)), "unknown type 99"),
        (raw([("k", struct.pack("<IB", 7, 2))], data=bytes(64)), "truth value"),
        (raw([("k", struct.pack("<IQ", 8, HUGE))], data=bytes(64)), "claims"),
        (raw([("k", struct.pack("<IQ", 8, 1 << 63))], data=bytes(64)), "claims"),
        (raw([("k", array(4, HUGE, b""))], data=bytes(64)), "claims 18,446,744,073,709,551,615 elements"),
        (raw([("k", array(4, (1 << 62) + 1, b""))], data=bytes(64)), "elements"),  # times 4 it would wrap to 4
        (raw([("k", array(8, HUGE, b""))], data=bytes(64)), "strings"),
        (raw([("k", array(8, 8, struct.pack("<Q", HUGE) * 8))], data=bytes(64)), "ends inside its header"),
        (raw([("k", array(8, 1, struct.pack("<Q", HUGE - 7)))], data=bytes(64)), "ends inside its header"),
        (raw([("k", array(9, 1, array(9, 1, b"")))], data=bytes(64)), "arrays of arrays"),
        (raw([("k", array(13, 1, b""))], data=bytes(64)), "unknown type 13"),
        (raw([("general.alignment", number(4, 0))], [ONE], bytes(16)), "power of two"),
        (raw([("general.alignment", number(4, 24))], [ONE], bytes(16)), "power of two"),
        (raw([("general.alignment", number(4, 1 << 31))], [ONE], bytes(16)), "power of two"),
        (raw([("general.alignment", number(5, -32))], [ONE], bytes(16)), "power of two"),
        (raw([("general.alignment", string("32"))], [ONE], bytes(16)), "power of two"),
        (raw([("general.alignment", number(7, 1))], [ONE], bytes(16)), "power of two"),
        (raw(infos=[ONE, info("a", [4], F32, 32)], data=bytes(64)), "twice"),
        (raw(infos=[info("", [4], F32, 0)], data=bytes(16)), "impossible name"),
        (raw(infos=[info("a\n", [4], F32, 0)], data=bytes(16)), "impossible name"),
        (raw(infos=[info("a" * 64, [4], F32, 0)], data=bytes(16)), "claims 64 bytes"),
        (raw(infos=[info("a", [], F32, 0)], data=bytes(64)), "0 sizes"),
        (raw(infos=[info("a", [1] * 5, F32, 0)], data=bytes(64)), "5 sizes"),
        (raw(infos=[text("a") + struct.pack("<I", (1 << 32) - 1)], data=bytes(64)), "sizes"),
        (raw(infos=[info("a", [0], F32, 0)], data=bytes(64)), "impossible sizes"),
        (raw(infos=[info("a", [4, 0], F32, 0)], data=bytes(64)), "impossible sizes"),
        (raw(infos=[info("a", [HUGE], F32, 0)], data=bytes(64)), "impossible sizes"),
        (raw(infos=[info("a", [1 << 32, 1 << 32], F32, 0)], data=bytes(64)), "impossible sizes"),
        (raw(infos=[info("a", [1 << 32, 1 << 16, 1 << 16, 2], F32, 0)], data=bytes(64)), "impossible sizes"),
        (raw(infos=[info("a", [1 << 59], F32, 0)], data=bytes(64)), "after the end"),
        (raw(infos=[info("a", [48], Q8_0, 0)], data=bytes(64)), "no multiple of Q8_0's 32"),
        (raw(infos=[info("a", [4], F32, 32)], data=bytes(64)), "expected 0"),
        (raw(infos=[info("a", [4], F32, HUGE - 31)], data=bytes(64)), "expected 0"),
        (raw(infos=[ONE, info("b", [4], F32, 0)], data=bytes(64)), "expected 32"),
        (raw(infos=[ONE, info("b", [4], F32, 16)], data=bytes(64)), "expected 32"),
        (raw(infos=[ONE, info("b", [4], F32, 64)], data=bytes(80)), "expected 32"),
        (raw(infos=[info("a", [8], F32, 0)], data=bytes(28)), "after the end"),
    ],
)
def test_files_that_lie_are_refused(tmp_path, data, words):
    with pytest.raises(CorruptModel, match="not a sound GGUF file") as caught:
        opened(tmp_path, data)
    assert words in str(caught.value.why)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (raw(version=1), "version 1"),
        (raw(version=4), "version 4"),
        (raw(version=3 << 24), "big-endian"),
        (raw(infos=[info("a", [4], 4, 0)], data=bytes(16)), "unknown type 4"),
        (raw(infos=[info("a", [4], 0xFFFFFFFF, 0)], data=bytes(16)), "unknown type"),
    ],
)
def test_what_is_not_read_is_named(tmp_path, data, words):
    with pytest.raises(UnsupportedModel, match=words):
        opened(tmp_path, data)


def test_sound_files_at_the_edges(tmp_path):
    assert opened(tmp_path, raw(version=2)).tensors == {}
    file = opened(tmp_path, raw([("general.alignment", number(4, 64))], [ONE], bytes(16), alignment=64))
    assert file.tensors["a"].offset % 64 == 0 and file.tensors["a"].num_bytes == 16
    assert (
        opened(tmp_path, raw(infos=[info("a" * 63, [1, 1, 1, 4], F32, 0)], data=bytes(16))).tensors["a" * 63].rows == 4
    )
    assert list(opened(tmp_path, raw([("k", array(4, 0, b"")), ("s", strings([]))])).values["s"]) == []


def test_every_cut_is_an_error(tmp_path):
    keys = [("s", string("abc")), ("n", number(10, 7)), ("a", array(6, 2, bytes(8))), ("t", strings(["x", "yz"]))]
    data = raw(keys, [ONE, info("b", [32, 2], Q8_0, 32)], bytes(32 + 68))
    assert set(opened(tmp_path, data).tensors) == {"a", "b"}
    for length in range(len(data)):
        with pytest.raises(CorruptModel):
            opened(tmp_path, data[:length])


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_are_refused_or_harmless(tmp_path, changes):
    keys = [("s", string("abc")), ("n", number(10, 7)), ("a", array(6, 2, bytes(8))), ("t", strings(["x", "yz"]))]
    data = bytearray(raw(keys, [ONE, info("b", [32, 2], Q8_0, 32)], bytes(32 + 68)))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        file = opened(tmp_path, bytes(data))
    except ModelError:
        return
    for name, tensor in file.tensors.items():
        assert file.read_blocks(name, 0, tensor.rows).nbytes == tensor.num_bytes <= len(data)
    file.close()


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tail=st.binary(max_size=200))
def test_anything_after_the_counts(tmp_path, tail):
    try:
        opened(tmp_path, raw(num_tensors=1, num_keys=2)[:24] + tail).close()
    except ModelError:
        pass


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.binary(max_size=12), st.integers(0, 700).map(bytes), st.just(b"ab" * 300)), min_size=1),
    st.binary(max_size=20),
    st.binary(max_size=30),
    st.sampled_from([8, 21, 300, 1 << 18]),
)
def test_strings_end_where_their_lengths_say(monkeypatch, items, before, behind, scanned):
    """This includes strings of zeros, which look like lengths, and strings that a search cuts."""
    monkeypatch.setattr(header, "SCANNED_BYTES", scanned)
    stored = b"".join(struct.pack("<Q", len(item)) + item for item in items)
    at, left = len(before), len(items)
    while left:
        passed, at = strings_within(before + stored + behind, at, left)
        assert 0 < passed <= left
        left -= passed
    assert at == len(before) + len(stored)


def test_too_many_strings_are_refused_before_they_cost_memory(tmp_path):
    path = tmp_path / "x.gguf"
    head = raw([("k", array(8, MAX_STRINGS + 1, b""))], alignment=1)
    with path.open("wb") as stream:
        stream.write(head)
        stream.truncate(len(head) + 8 * (MAX_STRINGS + 1))
    tracemalloc.start()
    with pytest.raises(CorruptModel, match="not a sound") as caught:
        GgufFile.open(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "strings" in str(caught.value.why) and most < 32 << 20


def test_a_header_of_ten_megabytes(tmp_path):
    tokens = [f"token{index:07}".encode() * 2 for index in range(150_000)]
    merges = [token[:9] + b" " + token[9:] for token in tokens]
    keys = [("tokens", strings(tokens)), ("merges", strings(merges)), ("scores", array(6, 150_000, bytes(600_000)))]
    data = raw(keys, [ONE], bytes(16))
    file = opened(tmp_path, data)
    assert len(data) > 10_000_000 and len(file.header) > 10_000_000
    assert list(file.values["tokens"]) == tokens and list(file.values["merges"]) == merges
    file.close()


def test_a_file_that_shrinks_is_an_error_not_a_signal(tmp_path):
    file = opened(tmp_path, raw(infos=[info("a", [1000], F32, 0)], data=bytes(4000)))
    os.truncate(file.path, 500)
    with pytest.raises(CorruptModel, match="ends inside tensor a"):
        file.read_blocks("a", 0, 1)
    file.close()


def part(index: int, count: int, name: str, **more: bytes) -> bytes:
    keys = {
        "split.no": number(2, index),
        "split.count": number(2, count),
        "split.tensors.count": number(5, count),
        **more,
    }
    return raw(list(keys.items()), [info(name, [4], F32, 0)], bytes(16))


def test_split_files(tmp_path):
    for index in range(3):
        write(tmp_path / f"m-{index + 1:05}-of-00003.gguf", part(index, 3, f"t{index}"))
    first = tmp_path / "m-00001-of-00003.gguf"
    files = open_split(first)
    assert [set(file.tensors) for file in files.values()] == [{"t0"}, {"t1"}, {"t2"}]
    for file in files.values():
        file.close()
    with pytest.raises(CorruptModel, match="not the first of 3"):
        open_split(tmp_path / "m-00002-of-00003.gguf")
    with pytest.raises(CorruptModel, match="not the first of 3"):
        open_split(write(tmp_path / "other.gguf", part(0, 3, "t0")))
    write(tmp_path / "m-00003-of-00003.gguf", part(2, 3, "t1"))
    with pytest.raises(CorruptModel, match="not a sound"):
        open_split(first)
    write(tmp_path / "m-00003-of-00003.gguf", part(1, 3, "t2"))
    with pytest.raises(CorruptModel, match="not a sound"):
        open_split(first)
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    with pytest.raises(CorruptModel, match="m-00003-of-00003.gguf is missing"):
        open_split(first)
    write(tmp_path / "n-00001-of-00001.gguf", part(0, 1, "t0"))
    assert len(open_split(tmp_path / "n-00001-of-00001.gguf")) == 1
    bomb = write(tmp_path / "b-00001-of-65535.gguf", part(0, 65535, "t0"))
    with pytest.raises(CorruptModel, match="not a sound"):
        open_split(bomb)


def test_a_description_need_not_be_utf8_and_what_changes_tokens_must(tmp_path):
    keys = [("general.description", string(b"caf\xe9")), ("general.tags", strings([b"\xff"]))]
    with closing(opened(tmp_path, raw(keys))) as file:
        assert file.values["general.description"] == "caf\ufffd"
    for key in ("tokenizer.chat_template", "tokenizer.ggml.pre"):
        with pytest.raises(CorruptModel, match="UTF-8"):
            opened(tmp_path, raw([(key, string(b"\xe9"))]))
