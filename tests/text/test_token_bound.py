"""The lower bound on a text's tokens is never above their number, whatever the text and the tokenizer."""

from __future__ import annotations

import functools
import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

from tests.tiers import examples
from twostroke.assets import spark_path
from twostroke.text.special_tokens import SpecialTokens
from twostroke.text.token_bound import TokenBound, covers_every_byte
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ContextLengthExceeded

from .kinds import MAKERS, byte_fallback, byte_level, make

COMPOSED = ["é", "ñ", "각", "ᾂ", "ạ̈", "Å", "Ω", "ǡ"]
PIECES = [
    *("the ", "naïve ", "你好", "🙂", "<s>", "</s>", "<|end|>", "<tool>", "<tall>", "▁", "▁▁", "   ", "\n\t", "\u3000"),
    *("e\u0301", "a\u0323\u0308", "<0x41>", "\x00", "K", "Å", "x" * 9, "prompt"),
    *(unicodedata.normalize("NFD", each) for each in COMPOSED),
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=40).map("".join)


def with_nfc() -> tokenizers.Tokenizer:
    """Qwen style."""
    library = byte_level()
    library.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(r"\p{L}+|\s+|[^\s\p{L}]+"), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return library


def with_greedy_tokens() -> tokenizers.Tokenizer:
    """Tokens that include the white space around them, as Phi-3 has."""
    library = byte_level()
    library.add_special_tokens([AddedToken("<tall>", lstrip=True, rstrip=True, special=True)])
    return library


KINDS = {"byte_level": byte_level, "byte_fallback": byte_fallback, "nfc": with_nfc, "greedy": with_greedy_tokens}


@functools.cache
def library_of(kind: str) -> tokenizers.Tokenizer:
    return KINDS[kind]()


@functools.cache
def bound_of(kind: str) -> TokenBound:
    return TokenBound(library_of(kind))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(300), deadline=None)
@given(text=TEXTS)
def test_the_bound_is_never_above_the_number_of_tokens(kind: str, text: str) -> None:
    assert bound_of(kind).fewest(text.encode()) <= len(library_of(kind).encode(text, add_special_tokens=False).ids)


def test_it_is_of_use() -> None:
    """It is within a factor of ten of the truth for words, and near it for characters that merge little."""
    for kind in ("byte_level", "nfc"):
        assert bound_of(kind).fewest("é".encode() * 100_000) > 10_000
    tokenizer = Tokenizer.from_folder(spark_path())
    words = "The quick brown fox jumps over the lazy dog. " * 3_000
    count = tokenizer.count_rendered(words)
    with pytest.raises(ContextLengthExceeded, match="at least"):
        tokenizer.encode_prompt(words, count // 10)
    with pytest.raises(ContextLengthExceeded, match=f"has {count:,} tokens"):
        tokenizer.encode_prompt(words, count)
    assert len(tokenizer.encode_prompt(words, count + 1)) == count


@pytest.mark.parametrize("kind", sorted(set(MAKERS) - {"byte_level", "byte_fallback", "byte_level_in_sequence"}))
def test_tokenizers_that_drop_characters_have_no_bound(kind: str) -> None:
    tokenizer = make(kind)
    assert tokenizer._bound is None
    assert tokenizer.encode_prompt(" " * 70_000 + "a", 100_000)


def test_normalizers_that_drop_characters_have_none() -> None:
    for normalizer in (normalizers.NFKC(), normalizers.Strip(), normalizers.Replace("a", ""), normalizers.Lowercase()):
        library = byte_level()
        library.normalizer = normalizer
        assert not covers_every_byte(library)
    library = byte_level()
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), library.pre_tokenizer])
    assert not covers_every_byte(library)


@settings(max_examples=examples(200), deadline=None)
@given(text=TEXTS)
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_encoding_without_the_gil_gives_the_same_ids(kind: str, text: str) -> None:
    """This includes special tokens, and limits that are left in the file."""
    library, ours = _both(kind)
    assert ours.encode_prompt(text) == library.encode(text, add_special_tokens=True).ids
    assert ours.encode_rendered(text) == library.encode(text, add_special_tokens=False).ids
    assert ours.count_rendered(text) == len(library.encode(text, add_special_tokens=False).ids)


@functools.cache
def _both(kind: str) -> tuple[tokenizers.Tokenizer, Tokenizer]:
    limited = MAKERS[kind]()
    limited.enable_truncation(3)
    limited.enable_padding(length=7)
    return MAKERS[kind](), Tokenizer(limited, SpecialTokens({"bos_token": "<s>"}, frozenset()))
