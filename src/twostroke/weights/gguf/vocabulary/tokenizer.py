"""The tokenizer of a GGUF file, turned back into the tokenizer.json from which it was converted.

This module has three kinds. `gpt2` has merges over bytes, split by `pre`. `llama` is SentencePiece: merges follow from
scores, and unknown characters become bytes. `gemma4` has merges over characters, with spaces as U+2581. Two more kinds
are in encoder_tokenizers.py, and one in greedy.py. Sources: llama-vocab.cpp of llama.cpp, transformers'
convert_slow_tokenizer.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.header import Value, corrupt, texts_of
from twostroke.weights.gguf.vocabulary.encoder_tokenizers import piece_of, unigram, wordpiece
from twostroke.weights.gguf.vocabulary.greedy import greedy
from twostroke.weights.gguf.vocabulary.post_processors import around
from twostroke.weights.gguf.vocabulary.pre_splits import NEWLINES, PRE_SPLITS, PreSplit
from twostroke.weights.gguf.vocabulary.score_merges import merges_of_scores
from twostroke.weights.gguf.vocabulary.token_list import (
    CONTROL,
    NORMAL,
    PREFIX,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    TokenList,
)
from twostroke.weights.json_file import parse_object
from twostroke.weights.vocabularies.members import added, bpe, sequence, split


def tokenizer_json(vocabulary: TokenList) -> dict[str, Any]:
    """Returns the members of tokenizer.json. Raises UnsupportedModel (kind or `pre` unknown), CorruptModel."""
    whole = vocabulary.values.get("tokenizer.huggingface.json")
    if isinstance(whole, str):
        return parse_object(whole.encode(), f"{vocabulary.place}: tokenizer.huggingface.json")
    kind = vocabulary.values.get(PREFIX + "model")
    made = MAKERS.get(str(kind))
    if made is None:
        raise UnsupportedModel(
            f"{vocabulary.place}: tokenizers of the kind {str(kind)[:40]!r} cannot be read.",
            why=f"Implemented: {', '.join(MAKERS)}.",
            fix="Use the original checkpoint of the model, which has a tokenizer.json.",
        )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(vocabulary),
        **made(vocabulary),
    }


def special_texts(vocabulary: TokenList) -> dict[str, str]:
    """Returns the texts of special tokens by name (bos_token and so on), as tokenizer_config.json has them."""
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    names |= {f"fim_{role}": f"fim_{role}" for role in ("pre", "suf", "mid", "rep", "sep", "pad")}
    found = {f"{ours}_token": vocabulary.text_of(f"{theirs}_token_id") for ours, theirs in names.items()}
    return {name: text for name, text in found.items() if text}


def chat_templates(values: Mapping[str, Value], place: str) -> dict[str, str]:
    """Returns the chat templates by their names; "default" is the usual one."""
    found: dict[str, str] = {}
    usual = values.get("tokenizer.chat_template")
    if isinstance(usual, str) and usual:
        found["default"] = usual
    for name in texts_of(values, "tokenizer.chat_templates", place):
        text = values.get(f"tokenizer.chat_template.{name}")
        if isinstance(text, str) and name.replace("_", "").replace("-", "").isalnum():
            found[name] = text
    return found


def _added(vocabulary: TokenList) -> list[dict[str, Any]]:
    """Returns the tokens that a tokenizer finds in a text before it splits the text: control tokens, the unknown token,
    and user-defined ones."""
    pieces = vocabulary.values.get(PREFIX + "model") == "bert"
    return [
        added(index, piece_of(vocabulary, index) if pieces else text, special=kind != USER_DEFINED)
        for index, (text, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if kind in (UNKNOWN, CONTROL, USER_DEFINED) and text
    ]


def _vocab(vocabulary: TokenList) -> dict[str, int]:
    """Returns text -> id; unused ids are left out, and of two equal texts the first counts."""
    found: dict[str, int] = {}
    for index, text in enumerate(vocabulary.tokens):
        if vocabulary.types[index] != UNUSED:
            found.setdefault(text, index)
    return found


def _merges(vocabulary: TokenList) -> list[list[str]]:
    merges = []
    for merge in texts_of(vocabulary.values, PREFIX + "merges", vocabulary.place):
        middle = merge.find(" ", 1)
        if middle < 0:
            raise corrupt(vocabulary.place, f"the merge {merge[:40]!r} has no two parts")
        merges.append([merge[:middle], merge[middle + 1 :]])
    if not merges:
        raise corrupt(vocabulary.place, "it has no tokenizer.ggml.merges")
    return merges


def _bytes(vocabulary: TokenList) -> dict[str, Any]:
    pre = _pre_split(vocabulary)
    prefix = vocabulary.truth("add_space_prefix", False)
    level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": False}
    return {
        "normalizer": {"type": "NFC"} if pre.composed else None,
        "pre_tokenizer": sequence("pretokenizers", [*map(split, pre.patterns), level]),
        "post_processor": around(vocabulary, begins=pre.begins),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": bpe(_vocab(vocabulary), _merges(vocabulary), ignore_merges=pre.whole_words),
    }


def _pre_split(vocabulary: TokenList) -> PreSplit:
    name = vocabulary.values.get(PREFIX + "pre")
    found = PRE_SPLITS.get(name) if isinstance(name, str) else None
    if found is None:
        said = (
            f"calls its split of texts {name[:40]!r}" if isinstance(name, str) else "does not name its split of texts"
        )
        raise UnsupportedModel(
            f"{vocabulary.place} {said} (tokenizer.ggml.pre).",
            why="A guess would give other tokens than the model was trained with. Known: "
            + ", ".join(PRE_SPLITS)
            + ".",
            fix="Use a newer file of this model, or its original checkpoint.",
        )
    return found


def _sentencepiece(vocabulary: TokenList) -> dict[str, Any]:
    vocab = _vocab(vocabulary)
    prefix = vocabulary.truth("add_space_prefix", True)
    unknown = vocabulary.text_of("unknown_token_id") or (
        vocabulary.tokens[0] if vocabulary.types[0] == UNKNOWN else None
    )
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    return {
        "normalizer": sequence("normalizers", [*([{"type": "Prepend", "prepend": SPACE}] if prefix else []), spaces]),
        "pre_tokenizer": None,
        "post_processor": around(vocabulary, begins=True),
        "decoder": _spaced_decoder(prefix),
        "model": bpe(
            vocab, _merges_of_scores(vocabulary, vocab), unk_token=unknown, fuse_unk=True, byte_fallback=True
        ),
    }


def _characters(vocabulary: TokenList) -> dict[str, Any]:
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    model = bpe(
        _vocab(vocabulary), _merges(vocabulary), unk_token=vocabulary.text_of("unknown_token_id"), byte_fallback=True
    )
    return {
        "normalizer": spaces,
        "pre_tokenizer": sequence("pretokenizers", [split(pattern) for pattern in NEWLINES]),
        "post_processor": around(vocabulary, begins=True),
        "decoder": _spaced_decoder(strips=False),
        "model": {**model, "fuse_unk": True},
    }


def _spaced_decoder(strips: bool) -> dict[str, Any]:
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strips else []
    return sequence("decoders", [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip])


def _merges_of_scores(vocabulary: TokenList, vocab: dict[str, int]) -> list[list[str]]:
    scores = vocabulary.values.get(PREFIX + "scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(vocabulary.tokens) or not np.isfinite(scores).all():
        raise corrupt(vocabulary.place, "tokenizer.ggml.scores is not one number for each token")
    return merges_of_scores(vocab, scores, [kind in (NORMAL, USER_DEFINED) for kind in vocabulary.types])


MAKERS: Mapping[str, Callable[[TokenList], dict[str, Any]]] = {
    "gpt2": _bytes,
    "llama": _sentencepiece,
    "gemma4": _characters,
    "bert": wordpiece,
    "t5": unigram,
    "rwkv": greedy,
}
"""The functions that make the members of tokenizer.json, by tokenizer.ggml.model."""


def as_json(members: Mapping[str, Any]) -> str:
    """Returns the text of a JSON file with these members, such as tokenizer.json."""
    return json.dumps(members, ensure_ascii=False)


def tokenizer_text(vocabulary: TokenList) -> str:
    """Returns the text of tokenizer.json. msgspec writes a large vocabulary in a fifth of json's time."""
    members = tokenizer_json(vocabulary)
    try:
        return msgspec.json.encode(members).decode("utf-8")
    except (OverflowError, UnicodeEncodeError):  # a number of more than 64 bits, or half of a surrogate pair
        return as_json(members)
