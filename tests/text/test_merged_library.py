"""Native merges make the tokens that the library makes, in every text, and refuse the files that they cannot treat as
the library does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from twostroke.assets import spark_path
from twostroke.backends.cpu.vocabulary import NativeVocabulary, native_vocabulary
from twostroke.text import merged_library as merged_library_module
from twostroke.text.byte_alphabet import characters
from twostroke.text.merged_library import MergedLibrary, merged_library, read_merged
from twostroke.text.special_tokens import SpecialTokens
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.tokenizer_file import merges_file, read_tokenizer
from twostroke.types.errors import CorruptModel

from .kinds import CORPUS, byte_fallback, byte_level

TEXTS = [
    *CORPUS,
    "",
    " ",
    "a",
    "<s>inside</s><tool>",
    "x▁y  \n\n",
    "naïve tôken",
    "\u200d🙂é",
    "\x01",
    "a\x01",
    "\x01\x01b\x00",
]


def native(text: str) -> MergedLibrary:
    """The tokenizer of a file's text with native merges. Raises where it is refused."""
    made = merged_library(merges_file(text.encode()), native_vocabulary, lambda: tokenizers.Tokenizer.from_str(text))
    made.require_sound()
    return made


def same(ours: Any, theirs: tokenizers.Tokenizer, texts: list[str]) -> None:
    assert isinstance(ours, MergedLibrary)
    assert ours.get_vocab_size(True) == theirs.get_vocab_size(True)
    assert {i: str(t) for i, t in ours.get_added_tokens_decoder().items()} == {
        i: str(t) for i, t in theirs.get_added_tokens_decoder().items()
    }
    for token, token_id in theirs.get_vocab(with_added_tokens=True).items():
        assert (ours.token_to_id(token), ours.id_to_token(token_id)) == (token_id, theirs.id_to_token(token_id))
    assert ours.token_to_id("no token") is None
    assert ours.id_to_token(10**6) is None
    for text in texts:
        for special in (False, True):
            found, right = (each.encode_batch_fast([text], add_special_tokens=special)[0] for each in (ours, theirs))
            assert (found.ids, len(found)) == (right.ids, len(right)), text
            for hidden in (False, True):
                assert ours.decode(right.ids, hidden) == theirs.decode(right.ids, skip_special_tokens=hidden)


def older(said: dict[str, Any]) -> str:
    said["model"]["merges"] = ["#version: 0.2", *(f"{left} {right}" for left, right in said["model"]["merges"])]
    return json.dumps(said, indent=1)


@pytest.mark.parametrize("made", [byte_level, byte_fallback])
@pytest.mark.parametrize("shape", [json.dumps, older, lambda said: json.dumps(said, ensure_ascii=False)])
def test_native_merges_make_the_tokens_of_the_library(
    made: Callable[[], tokenizers.Tokenizer], shape: Callable[[Any], str], tmp_path: Path
) -> None:
    text = shape(json.loads(made().to_str()))
    same(native(text), tokenizers.Tokenizer.from_str(text), TEXTS)
    (tmp_path / "tokenizer.json").write_text("\ufeff" + text, encoding="utf-8")
    same(read_merged(tmp_path, native_vocabulary), tokenizers.Tokenizer.from_str(text), TEXTS)


def test_the_embedded_tokenizer_has_native_merges() -> None:
    same(read_merged(spark_path(), native_vocabulary), read_tokenizer(spark_path()), TEXTS)


@pytest.mark.parametrize("made", [byte_level, byte_fallback])
def test_characters_without_tokens_are_left_out(made: Callable[[], tokenizers.Tokenizer]) -> None:
    said = json.loads(made().to_str())
    vocabulary, merges = said["model"]["vocab"], said["model"]["merges"]
    for token in {"\u0100", "é", "a", "Ã", "<0xC3>"} & vocabulary.keys():
        del vocabulary[token]
        merges[:] = [pair for pair in merges if token not in pair and "".join(pair) != token]
    merges[:] = [pair for pair in merges if {*pair, "".join(pair)} <= vocabulary.keys()]
    kept = {token: place for place, token in enumerate(vocabulary)}
    said["added_tokens"] = []
    said["model"] |= {"vocab": kept, "unk_token": None, "fuse_unk": False}
    said["post_processor"] = None
    text = json.dumps(said)
    same(native(text), tokenizers.Tokenizer.from_str(text), TEXTS)


LETTERS = "ab▁\n éĠ"


@st.composite
def drawn(draw: st.DrawFn) -> tokenizers.Tokenizer:
    """Merges in a random order, some of which stand twice, options, and added tokens with all flags.

    Where ids have gaps, these are tokens of the vocabulary: the library could give other ones an id that is taken.
    """
    by_level = draw(st.booleans())
    first = [*sorted(characters())] if by_level else [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {text: number for number, text in enumerate(dict.fromkeys([*first, *LETTERS]))}
    merges: list[tuple[str, str]] = []
    known, gaps = [*LETTERS], draw(st.booleans())
    for _ in range(draw(st.integers(0, 16))):
        left, right = (draw(st.sampled_from(known)) for _ in range(2))
        merges.append((left, right))
        known.append(left + right)
        vocabulary.setdefault(left + right, max(vocabulary.values()) + (draw(st.integers(1, 3)) if gaps else 1))
    made = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, byte_fallback=not by_level, ignore_merges=draw(st.booleans()))
    )
    made.normalizer = draw(
        st.sampled_from([normalizers.NFC(), normalizers.Replace(" ", "▁"), normalizers.Prepend("▁")])
    )
    if by_level:
        split = pre_tokenizers.Split(tokenizers.Regex(r" ?[a-z]+|\s+"), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        made.decoder = decoders.ByteLevel()
    elif draw(st.booleans()):
        made.pre_tokenizer = pre_tokenizers.Metaspace(split=draw(st.booleans()))
    added = st.sampled_from(known) if gaps else st.text(LETTERS, min_size=1, max_size=4)
    for text in draw(st.lists(added, max_size=5, unique=True)):
        flags = {name: draw(st.booleans()) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        made.add_tokens([AddedToken(text, **flags)])
    return made


@given(drawn(), st.lists(st.text(LETTERS + "\x01cß🙂", max_size=24), max_size=6))
def test_any_vocabulary_makes_the_tokens_of_the_library(made: tokenizers.Tokenizer, texts: list[str]) -> None:
    text = made.to_str()
    same(native(text), tokenizers.Tokenizer.from_str(text), texts)


def test_quoted_control_tokens_are_the_same_text() -> None:
    said, special = json.loads(byte_level().to_str()), SpecialTokens({"bos_token": "<s>"}, frozenset())
    said["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    text = json.dumps(said)
    ours, theirs = (Tokenizer(each, special) for each in (native(text), tokenizers.Tokenizer.from_str(text)))
    prompt = "<s>hi <s> there</s> <tool> <|end|>"
    for quoted in ((), ((4, 16),), ((0, len(prompt)),)):
        assert ours.encode_rendered(prompt, quoted=quoted) == theirs.encode_rendered(prompt, quoted=quoted)
    assert ours.encode_prompt(prompt, parse_special=False) == theirs.encode_prompt(prompt, parse_special=False)
    assert (ours.bos_id, ours.vocab_size, ours.special_ids) == (theirs.bos_id, theirs.vocab_size, theirs.special_ids)
    assert ours.rows_bytes(ours.vocab_size + 2) == theirs.rows_bytes(theirs.vocab_size + 2)
    assert ours._bound is not None
    assert theirs._bound is not None
    assert ours._bound.fewest(b"some text" * 99) == theirs._bound.fewest(b"some text" * 99)


def test_the_longest_texts_are_encoded_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_library_module, "MOST_SPELLED", 3)
    monkeypatch.setattr(NativeVocabulary, "encode", lambda *_: pytest.fail("the text is long"))
    test_quoted_control_tokens_are_the_same_text()
    same(native(byte_fallback().to_str()), byte_fallback(), [text for text in TEXTS if len(text) > 3])


def two_of_one_id(said: dict[str, Any]) -> None:
    said["model"]["vocab"]["twice"] = 5


def ends_of_words(said: dict[str, Any]) -> None:
    said["model"]["end_of_word_suffix"] = "</w>"


def a_byte_less(said: dict[str, Any]) -> None:
    del said["model"]["vocab"]["\u0100"]
    said["model"] |= {"merges": [], "unk_token": "a"}


def other_id(said: dict[str, Any]) -> None:
    said["added_tokens"][-1]["id"] += 7


def written_as_a_byte(said: dict[str, Any]) -> None:
    said["added_tokens"].append(
        {**said["added_tokens"][-1], "content": "<0x41>", "id": said["added_tokens"][-1]["id"] + 1}
    )


def negative(said: dict[str, Any]) -> None:
    said["model"]["vocab"]["a"] = -1


def far(said: dict[str, Any]) -> None:
    said["model"]["vocab"]["far"] = 1 << 29


@pytest.mark.parametrize(
    "change", [two_of_one_id, ends_of_words, a_byte_less, other_id, written_as_a_byte, negative, far]
)
def test_other_files_are_left_to_the_library(change: Callable[[Any], None], tmp_path: Path) -> None:
    said = json.loads(byte_level().to_str())
    change(said)
    with pytest.raises(Exception):  # noqa: B017 (whatever the reason)
        native(json.dumps(said))
    (tmp_path / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    if change is negative:
        with pytest.raises(CorruptModel):
            read_merged(tmp_path, native_vocabulary)
        return
    assert isinstance(read_merged(tmp_path, native_vocabulary), tokenizers.Tokenizer)


def test_merges_of_unknown_tokens_end_the_start(tmp_path: Path) -> None:
    said = json.loads(byte_level().to_str())
    said["model"]["merges"].append(["a", "\u0100"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(CorruptModel) as theirs:
        read_tokenizer(tmp_path)
    found = Tokenizer.from_folder(tmp_path, read=lambda folder: read_merged(folder, native_vocabulary))
    with pytest.raises(CorruptModel, match="is no usable tokenizer") as ours:
        found.require_sound()
    assert str(ours.value) == str(theirs.value)


def test_merges_that_only_the_library_reads_are_applied_by_it(tmp_path: Path) -> None:
    """A merge makes a token of nearly 4,096 bytes, the most that is read."""
    said = json.loads(byte_level().to_str())
    long, place = "a" * 4094, len(said["model"]["vocab"])
    said["model"]["vocab"] |= {long: place + 10, "b" + long: place + 11}
    said["model"]["merges"].append(["b", long])
    said["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(said), encoding="utf-8")
    found = read_merged(tmp_path, native_vocabulary)
    theirs = read_tokenizer(tmp_path)
    for text in TEXTS:
        right = theirs.encode_batch_fast([text], add_special_tokens=True)[0].ids
        assert found.encode_batch_fast([text], add_special_tokens=True)[0].ids == right
