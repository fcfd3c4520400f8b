"""A tokenizer.json with merges is built in the quick way, and is the tokenizer that the library reads from that
file."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

import twostroke
from twostroke.assets import spark_path
from twostroke.text import tokenizer_file
from twostroke.text.tokenizer_file import read_tokenizer, tokenizer_members, with_merges
from twostroke.types.errors import CorruptModel

from .kinds import CORPUS, byte_fallback, byte_level

TEXTS = [*CORPUS, "", " ", "<s>inside</s><tool>", "x▁y  \n\n", "naïve tôken", "\u200d🙂é"]


def same(ours: tokenizers.Tokenizer, theirs: tokenizers.Tokenizer) -> None:
    """All properties of a tokenizer, as the library writes them, and its results for texts."""
    assert ours.to_str() == theirs.to_str()
    for text in TEXTS:
        for special in (False, True):
            found, right = (each.encode(text, add_special_tokens=special) for each in (ours, theirs))
            assert (found.ids, found.tokens, found.offsets) == (right.ids, right.tokens, right.offsets)
            assert ours.decode(found.ids) == theirs.decode(found.ids)


def older(said: dict[str, Any]) -> dict[str, Any]:
    """Merges as text, as files had them before tokens could contain spaces."""
    said["model"]["merges"] = ["#version: 0.2", *(f"{left} {right}" for left, right in said["model"]["merges"])]
    return said


def without_defaults(said: dict[str, Any]) -> dict[str, Any]:
    for name in [name for name, value in said["model"].items() if value in (None, False)]:
        del said["model"][name]
    return {name: value for name, value in said.items() if value is not None}


@pytest.mark.parametrize("made", [byte_level, byte_fallback])
@pytest.mark.parametrize("shape", [dict, older, without_defaults])
def test_the_quick_way_builds_what_the_library_reads(
    made: Callable[[], tokenizers.Tokenizer], shape: Callable[[Any], Any], tmp_path: Path
) -> None:
    text = json.dumps(shape(json.loads(made().to_str())))
    same(with_merges(text.encode()), tokenizers.Tokenizer.from_str(text))
    (tmp_path / "tokenizer.json").write_text("\ufeff" + text)
    same(read_tokenizer(tmp_path), tokenizers.Tokenizer.from_str(text))


def test_the_embedded_tokenizer_is_built_the_quick_way() -> None:
    raw = (spark_path() / "tokenizer.json").read_bytes()
    same(with_merges(raw), tokenizers.Tokenizer.from_str(raw.decode()))


WORDS = st.text("ab▁\n é", min_size=1, max_size=4)


@st.composite
def drawn(draw: st.DrawFn) -> tokenizers.Tokenizer:
    """Merges in a random order, options, and added tokens within the vocabulary and outside it."""
    vocabulary, merges = {letter: number for number, letter in enumerate("ab▁\n é")}, []
    for _ in range(draw(st.integers(0, 12))):
        left, right = (draw(st.sampled_from(sorted(vocabulary))) for _ in range(2))
        if (left, right) not in merges:
            merges.append((left, right))
            vocabulary.setdefault(left + right, len(vocabulary) + draw(st.integers(0, 3)) * 100)
    if len(set(vocabulary.values())) < len(vocabulary):  # the library itself is not sure of such a file
        vocabulary = {token: number for number, token in enumerate(vocabulary)}
    options: dict[str, Any] = {name: draw(st.booleans()) for name in ("fuse_unk", "byte_fallback", "ignore_merges")}
    options["unk_token"] = draw(st.sampled_from([None, "a", "b"]))
    made = tokenizers.Tokenizer(models.BPE(vocabulary, merges, **options))
    if draw(st.booleans()):
        made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")])
    if draw(st.booleans()):
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    for text in draw(st.lists(WORDS, max_size=5)):
        flags = {name: draw(st.booleans()) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        made.add_tokens([AddedToken(text, **flags)])
    return made


@given(drawn(), st.lists(st.text("ab▁\n éc", max_size=20), max_size=5))
def test_any_vocabulary_with_merges_is_the_same_both_ways(made: tokenizers.Tokenizer, texts: list[str]) -> None:
    text = made.to_str()
    ours, theirs = with_merges(text.encode()), tokenizers.Tokenizer.from_str(text)
    assert ours.to_str() == theirs.to_str()
    for each in texts:
        assert ours.encode(each).ids == theirs.encode(each).ids


def unknown_field(said: dict[str, Any]) -> None:
    said["model"]["news"] = 1


def with_dropout(said: dict[str, Any]) -> None:
    said["model"]["dropout"] = 0.25


def words(said: dict[str, Any]) -> None:
    said["model"] = {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}
    said["post_processor"] = None


def no_type(said: dict[str, Any]) -> None:
    del said["model"]["type"]


@pytest.mark.parametrize("change", [unknown_field, with_dropout, words, no_type])
def test_the_library_reads_what_the_quick_way_does_not_know(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    said = json.loads(byte_level().to_str())
    change(said)
    text = json.dumps(said)
    with pytest.raises(Exception, match=r".") as refused:
        with_merges(text.encode())
    assert refused.value.__class__.__module__ == "msgspec"
    (tmp_path / "tokenizer.json").write_text(text)
    assert read_tokenizer(tmp_path).to_str() == tokenizers.Tokenizer.from_str(text).to_str()


def negative_id(said: dict[str, Any]) -> None:
    said["model"]["vocab"]["a"] = -1


def large_id(said: dict[str, Any]) -> None:
    said["model"]["vocab"]["a"] = 1 << 32


def three_parts(said: dict[str, Any]) -> None:
    said["model"]["merges"] = ["a b c"]


def unlike_merges(said: dict[str, Any]) -> None:
    said["model"]["merges"] = [["t", "h"], "t h"]


def unlike_merges_text_first(said: dict[str, Any]) -> None:
    said["model"]["merges"] = ["t h", ["t", "h"]]


def unknown_token(said: dict[str, Any]) -> None:
    said["model"]["merges"] = [["never", "seen"]]


def half_a_character(said: dict[str, Any]) -> None:
    said["model"]["vocab"]["\ud800"] = 5000


def other_version(said: dict[str, Any]) -> None:
    said["version"] = "2.0"


BROKEN = [
    *(negative_id, large_id, three_parts, unlike_merges, unlike_merges_text_first, unknown_token),
    *(half_a_character, other_version),
]


@pytest.mark.parametrize("change", BROKEN)
def test_the_library_says_what_is_wrong_with_a_broken_file(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    said = json.loads(byte_level().to_str())
    change(said)
    text = json.dumps(said)
    with pytest.raises(Exception, match=r".") as right:
        tokenizers.Tokenizer.from_str(text)
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CorruptModel) as found:
        read_tokenizer(tmp_path)
    assert str(right.value) in str(found.value.why)


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_afterwards_as_before(collects: bool, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    before = gc.isenabled()
    try:
        gc.enable() if collects else gc.disable()
        read_tokenizer(spark_path())
        assert gc.isenabled() is collects
        with pytest.raises(CorruptModel):
            read_tokenizer(tmp_path)
        assert gc.isenabled() is collects
    finally:
        gc.enable() if before else gc.disable()


def test_a_start_builds_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library gets a file without a vocabulary, because it would decode that of the whole file three times."""
    built: list[int] = []

    def noted(raw: bytes) -> tokenizers.Tokenizer:
        built.append(len(raw))
        return with_merges(raw)

    monkeypatch.setattr(tokenizer_file, "with_merges", noted)
    read_tokenizer(spark_path())
    assert built == [(spark_path() / "tokenizer.json").stat().st_size]


def test_members_of_a_file_that_is_larger_than_other_json_files_may_be(tmp_path: Path) -> None:
    text = byte_fallback().to_str()
    (tmp_path / "tokenizer.json").write_text("\ufeff" + text + " " * (17 << 20))
    assert tokenizer_members(tmp_path) == json.loads(text)


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, "\xff"])
def test_members_of_a_broken_file_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptModel, match=r"tokenizer\.json is no usable tokenizer"):
        tokenizer_members(tmp_path)


def test_one_module_reads_the_file() -> None:
    """Readers of other JSON files stop at 16 MB, and published vocabularies have more."""
    sources = {path: path.read_text() for path in Path(twostroke.__file__).parent.rglob("*.py")}
    reading = re.compile(r"read_\w+\([^()]*\"tokenizer\.json\"")
    assert [path.name for path, text in sources.items() if reading.search(text)] == []
