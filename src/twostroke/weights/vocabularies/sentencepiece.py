"""Reads tokenizer.model of SentencePiece: pieces with scores, in the encoding of protocol buffers.

Only merges over pieces (BPE) are read, as Llama 2, Mistral 7B and InternLM have them. The file's types of pieces are
the same as in GGUF, so the function for GGUF's kind `llama` makes the members. Source: sentencepiece_model.proto.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.gguf.vocabulary.encoder_tokenizers import is_sound_charsmap
from twostroke.weights.gguf.vocabulary.token_list import NORMAL, PREFIX, TokenList
from twostroke.weights.gguf.vocabulary.tokenizer import special_texts, tokenizer_json
from twostroke.weights.json_file import DOWNLOAD_AGAIN, read_bytes, read_object
from twostroke.weights.vocabularies.members import added, sequence
from twostroke.weights.vocabularies.tokenizer_files import TokenizerFiles

NAME = "tokenizer.model"
MAX_BYTES = 64 << 20
PIECE, TRAINER, NORMALIZER = 1, 2, 3
MODEL_TYPE, BPE = 3, 2
IDS = {40: "unknown_token_id", 41: "bos_token_id", 42: "eos_token_id", 43: "padding_token_id"}
"""Numbers of fields of TrainerSpec, with the names that GGUF has for them."""
USUAL_IDS = {"unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CHARSMAP, DUMMY_PREFIX = 2, 3

Field = tuple[int, int | bytes]


def read_sentencepiece(folder: Path) -> TokenizerFiles:
    """Reads the vocabulary of a folder. Raises CorruptModel; raises UnsupportedModel for a kind other than BPE."""
    tokens, scores, types, trainer, normalizer = _model(read_bytes(folder / NAME, MAX_BYTES))
    if trainer.get(MODEL_TYPE, 1) != BPE:
        raise UnsupportedModel(
            f"{folder} has no tokenizer.json, and its {NAME} has no merges.",
            why="Only the kind BPE of SentencePiece is read without tokenizer.json.",
            fix="Convert it: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) with transformers.",
        )
    path = folder / "tokenizer_config.json"
    config = read_object(path) if path.is_file() else {}
    ids = USUAL_IDS | {name: _signed(trainer[field]) for field, name in IDS.items() if field in trainer}
    values: dict[str, Any] = {PREFIX + name: index for name, index in ids.items()}
    values |= {PREFIX + "model": "llama", PREFIX + "scores": np.array(scores, np.float32)}
    values[PREFIX + "add_space_prefix"] = bool(normalizer.get(DUMMY_PREFIX, 1))
    for name in ("add_bos_token", "add_eos_token"):
        if isinstance(config.get(name), bool):
            values[PREFIX + name] = config[name]
    vocabulary = TokenList(tokens, types, values, NAME)
    members = tokenizer_json(vocabulary)
    members["added_tokens"] = _added(config, members["added_tokens"])
    # The library gives an added token its id only where the model has it under the same id.
    members["model"]["vocab"] |= {token["content"]: token["id"] for token in members["added_tokens"]}
    _put_charsmap(members, normalizer.get(CHARSMAP))
    return TokenizerFiles(members, special_texts(vocabulary))


def _model(data: bytes) -> tuple[list[str], list[float], list[int], dict[int, Any], dict[int, Any]]:
    tokens: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    specs: dict[int, dict[int, Any]] = {TRAINER: {}, NORMALIZER: {}}
    try:
        for number, value in _fields(data):
            if number == PIECE:
                piece = dict(_fields(_bytes(value)))
                tokens.append(_bytes(piece[1]).decode("utf-8"))
                scores.append(struct.unpack("<f", _bytes(piece.get(2, b"\0\0\0\0")))[0])
                types.append(int(piece.get(3, NORMAL)))
            elif number in specs:
                specs[number] = dict(_fields(_bytes(value)))
    except (KeyError, IndexError, TypeError, ValueError, struct.error):
        raise CorruptModel(f"{NAME} is no file of SentencePiece.", fix=DOWNLOAD_AGAIN) from None
    if not tokens:
        raise CorruptModel(f"{NAME} has no pieces.", fix=DOWNLOAD_AGAIN)
    return tokens, scores, types, specs[TRAINER], specs[NORMALIZER]


def _fields(data: bytes) -> Iterator[Field]:
    """Yields the fields of one message: number and value. Raises IndexError or ValueError where the bytes are not a
    message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise ValueError("a field is longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number has more than ten bytes")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number stands where bytes are expected")
    return value


def _signed(value: int) -> int:
    """Returns an int32 from its stored form: -1, for a token that is absent, has all of 64 bits set."""
    return value - (1 << 64) if value >> 63 else value


def _added(config: Mapping[str, Any], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns all added tokens, in the order of their ids. found: the special tokens of tokenizer.model. A token in
    tokenizer_config.json is added, or replaces the one with the same id."""
    tokens = {token["id"]: token for token in found}
    listed = config.get("added_tokens_decoder")
    for index, token in listed.items() if isinstance(listed, dict) else ():
        text = token.get("content") if isinstance(token, dict) else None
        if not index.isdecimal() or not isinstance(text, str) or not text:
            raise CorruptModel("tokenizer_config.json has an added token without a text or an id.", fix=DOWNLOAD_AGAIN)
        tokens[int(index)] = added(int(index), text, special=token.get("special") is not False)
    return [tokens[index] for index in sorted(tokens)]


def _put_charsmap(members: dict[str, Any], stored: Any) -> None:
    """Adds the table of replaced characters to `members`. The normalizer applies it before its other steps."""
    if not stored:
        return
    if not isinstance(stored, bytes) or not is_sound_charsmap(stored):
        raise CorruptModel(f"{NAME} has a table of characters that is not sound.", fix=DOWNLOAD_AGAIN)
    step = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(stored).decode()}
    members["normalizer"] = sequence("normalizers", [step, members["normalizer"]])


