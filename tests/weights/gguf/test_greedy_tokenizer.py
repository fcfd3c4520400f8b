"""The tokenizer `rwkv`: the longest token at each place, also where tokens end within a character."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.weights.gguf.files import array, info, number, raw, string, strings, write
from tests.weights.gguf.test_tokenizers import NASTY
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.container import GgufFile
from twostroke.weights.gguf.vocabulary.token_list import TokenList
from twostroke.weights.gguf.vocabulary.tokenizer import as_json, tokenizer_json

LONGEST = 9


def vocabulary() -> list[bytes]:
    """All bytes, and pieces of the texts, many of which begin or end within a character."""
    rng, data = np.random.default_rng(3), "".join(NASTY).encode()
    begins = rng.integers(0, len(data) - LONGEST, 600)
    pieces = {data[begin : begin + length] for begin in begins.tolist() for length in rng.integers(2, LONGEST, 2)}
    return [bytes([byte]) for byte in range(256)] + sorted(pieces)


def tokenizer_of(tokens: list[str], folder: Path) -> Tokenizer:
    size = len(tokens)
    types = array(5, size, np.array([3] + [1] * (size - 2) + [5], np.int32).tobytes())
    keys = {"model": string("rwkv"), "tokens": strings(tokens), "token_type": types, "eos_token_id": number(4, 0)}
    said = [(f"tokenizer.ggml.{name}", value) for name, value in keys.items()]
    path = write(folder / "x.gguf", raw(said, [info("token_embd.weight", [8, 1], 0, 0)], bytes(32)))
    with closing(GgufFile.open(path)) as file:
        (folder / "tokenizer.json").write_text(as_json(tokenizer_json(TokenList.read(file.values, "x.gguf"))))
    (folder / "config.json").write_text("{}")
    return Tokenizer.from_folder(folder)


def written(tokens: list[bytes]) -> list[str]:
    """The tokens as llama.cpp's converter writes them. The first and the last are no strings of bytes."""
    return ["<s>", *(repr(token)[2:-1] for token in tokens), "[PAD9]"]


def test_the_longest_token_is_taken(tmp_path):
    tokens = vocabulary()
    made, ids = tokenizer_of(written(tokens), tmp_path), {token: index for index, token in enumerate(tokens, 1)}
    longer = 0
    for text in (*NASTY, "[PAD9]", "\\x41 \\' \"'"):
        data, expected = text.replace("<s>", "").encode(), []
        while data:
            length = next(size for size in range(LONGEST, 0, -1) if data[:size] in ids)
            expected.append(ids[data[:length]])
            data, longer = data[length:], longer + (length > 1)
        found = made.encode_rendered(text.replace("<s>", ""))
        assert found == expected
        assert b"".join(map(made.token_bytes, found)).decode() == made.decode(found) == text.replace("<s>", "")
    assert longer > 100
    assert made.encode_rendered("<s>é") == [0, *made.encode_rendered("é")]


@pytest.mark.parametrize(
    ("changed", "why"), [("\\x41\\x42", "the byte 65"), ("€", "no string of bytes"), ("", "bytes")]
)
def test_other_vocabularies_are_refused(changed, why, tmp_path):
    tokens = written([bytes([byte]) for byte in range(256)])
    tokens[tokens.index("A")] = changed
    with pytest.raises(CorruptModel, match=why):
        tokenizer_of(tokens, tmp_path)
