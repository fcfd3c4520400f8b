"""What native code reads of a tokenizer.json: JSON in every way of writing it, and nothing that is another form."""

from __future__ import annotations

import json

import numpy as np
import pytest

from twostroke.backends.cpu.vocabulary import NativeVocabulary
from twostroke.types.errors import TokenizerFailed

TOKENS = b'{"a":0,"b":1,"c":2,"ab":3,"abc":4,"bc":5}'


def read(
    tokens: bytes, merges: bytes = b"[]", *, whole_words: bool = False, byte_fallback: bool = False
) -> NativeVocabulary:
    given = (np.frombuffer(each, np.uint8) for each in (tokens, merges))
    return NativeVocabulary(*given, whole_words=whole_words, byte_fallback=byte_fallback)


def words(text: str) -> list[int]:
    """The pieces of words with spaces between them."""
    return [piece for word in text.split() for piece in (*word.encode(), 256)]


@pytest.mark.parametrize(
    "tokens",
    [
        TOKENS,
        b'{ "a" :\n0 ,\t"b":\r1073741823 }'.replace(b"1073741823", b"900"),
        b'{"\\u0041":0,"\\ud83d\\ude00":1,"\\n\\t\\r\\b\\f\\"\\\\\\/":2,"\\u00e9\\u20AC":3,"\\u0000":4}',
        '{"é€🙂":7,"":3}'.encode(),
    ],
)
def test_tokens_are_what_json_says(tokens: bytes) -> None:
    said, found = json.loads(tokens), read(tokens)
    assert found.size == len(said)
    assert {text: found.id_of(text) for text in said} == said
    assert [found.text_of(number) for number in range(-1, 1000)] == [
        {number: text for text, number in said.items()}.get(number) for number in range(-1, 1000)
    ]
    assert found.id_of("not there") is None
    assert found.id_of("\ud800") is None


@pytest.mark.parametrize(
    "tokens",
    [
        b"",
        b"{}",
        b"[]",
        b'{"a":0',
        b'{"a":0,}',
        b'{"a" 0}',
        b"{a:0}",
        b'{"a":01}',
        b'{"a":-1}',
        b'{"a":1.0}',
        b'{"a":1e2}',
        b'{"a":"0"}',
        b'{"a":99999999999}',
        b'{"a":100000}',
        b'{"a":0,"a":1}',
        b'{"a":0,"b":0}',
        b'{"\\ud800":0}',
        b'{"\\ude00":0}',
        b'{"\\ud83dx":0}',
        b'{"\\x41":0}',
        b'{"\\u00g0":0}',
        b'{"\\u00',
        b'{"\x01":0}',
        b'{"\xff":0}',
        b'{"\xc0\x80":0}',
        b'{"\xed\xa0\x80":0}',
        b'{"\xf4\x90\x80\x80":0}',
        b'{"\xe2\x82":0}',
        b'{"' + b"a" * 5000 + b'":0}',
    ],
)
def test_other_tokens_are_refused(tokens: bytes) -> None:
    with pytest.raises(ValueError, match="status|the largest id"):
        read(tokens)


@pytest.mark.parametrize(
    ("merges", "ids"),
    [
        (b"[]", [0, 1, 2]),
        (b'[["a","b"],["ab","c"]]', [4]),
        (b' [ [ "a" , "b" ] , [ "ab" , "c" ] ] ', [4]),
        (b'["a b","ab c"]', [4]),
        (b'["#version: 0.2","a b","ab c"]', [4]),
        (b'[["b","c"],["a","b"],["ab","c"]]', [0, 5]),
        (b'[["\\u0061","b"]]', [3, 2]),
        (b'[["a","b"],["b","c"],["a","b"]]', [0, 5]),
    ],
)
def test_merges_are_applied_in_their_order(merges: bytes, ids: list[int]) -> None:
    found = read(TOKENS, merges)
    assert found.sound()
    assert found.encode(words("abc"), []) == ids
    assert found.encode([*words("abc"), 258, *words("c"), 259], [77, 88]) == [*ids, 77, 2, 88]


@pytest.mark.parametrize(
    "merges",
    [
        b"",
        b"{}",
        b"[",
        b'[["a","b"]',
        b'[["a","b"],]',
        b'[["a","b"],"a b"]',
        b'["a b",["a","b"]]',
        b'[["a"]]',
        b'[["a","b","c"]]',
        b'[["",""]]',
        b'["ab"]',
        b'["a  b"]',
        b'["a b c"]',
        b'[["a","x"]]',
        b'[["c","c"]]',
        b'[["a","' + b"b" * 5000 + b'"]]',
    ],
)
def test_other_merges_are_not_sound(merges: bytes) -> None:
    assert not read(TOKENS, merges).sound()


def test_a_word_that_is_a_token_is_whole_where_the_model_says_so() -> None:
    assert read(TOKENS, b"[]", whole_words=True).encode(words("abc b ac"), []) == [4, 1, 0, 2]
    assert read(TOKENS, b"[]").encode(words("abc b ac"), []) == [0, 1, 2, 1, 0, 2]


def test_bytes_stand_for_characters_without_a_token() -> None:
    names = {f"<0x{byte:02X}>": byte for byte in range(256)}
    tokens = json.dumps({**names, "é": 300, "a": 301}).encode()
    found = read(tokens, byte_fallback=True)
    assert found.writes_bytes()
    assert found.encode([*words("aéß"), 1, 257], []) == [301, 300, 0xC3, 0x9F, 1, 1]
    assert read(tokens).encode(words("aßa éß"), []) == [301, 301, 300]
    del names["<0x9F>"]
    assert read(json.dumps({**names, "a": 301}).encode(), byte_fallback=True).encode(words("aßÃa"), []) == [
        *(301, 0xC3, 0x83),
        301,
    ]


@pytest.mark.parametrize("pieces", [[-1], [258], [97], [260, 256]])
def test_pieces_that_are_none_are_refused(pieces: list[int]) -> None:
    with pytest.raises(TokenizerFailed):
        read(TOKENS).encode(pieces, [])
