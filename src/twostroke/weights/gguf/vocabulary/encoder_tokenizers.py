"""The tokenizers of encoders in a GGUF file: `bert` (WordPiece) and `t5` (Unigram, as XLM-RoBERTa has it).

A WordPiece vocabulary is stored with U+2581 before the pieces that begin a word, and without the ## of the others;
control tokens are stored as they are. Sources: conversion/bert.py and llama-vocab.cpp of llama.cpp, transformers'
convert_slow_tokenizer.py.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.header import corrupt
from twostroke.weights.gguf.vocabulary.post_processors import around, template
from twostroke.weights.gguf.vocabulary.token_list import BYTE, CONTROL, PREFIX, SPACE, UNKNOWN, UNUSED, TokenList

CONTINUES = "##"
LONGEST_WORD = 100
"""The most characters of a word that is split into pieces; longer words are unknown. It is BERT's own limit, for which
there is no key."""

USUAL_IDS = {"bos": 101, "unknown": 100, "seperator": 102}
"""The ids where the keys are absent: those of BERT's first vocabulary. The key is spelled "seperator"."""

UNITS_OF_BLOCK = 256
LEAF, HAS_LEAF, EXTENDED = 1 << 31, 1 << 8, 1 << 9
"""Bits of a unit of a double-array trie (darts-clone)."""


def wordpiece(vocabulary: TokenList) -> dict[str, Any]:
    """Returns the members of tokenizer.json for `bert`. Raises CorruptModel."""
    first, unknown, last = (_special(vocabulary, name) for name in USUAL_IDS)
    vocab: dict[str, int] = {}
    for index in range(len(vocabulary.tokens)):
        if vocabulary.types[index] != UNUSED:
            vocab.setdefault(piece_of(vocabulary, index), index)
    if unknown not in vocab:
        raise corrupt(vocabulary.place, f"its unknown token {unknown[:40]!r} is no piece of its vocabulary")
    single = [(first, 0), ("A", 0), (last, 0)]
    lower = vocabulary.truth("normalizer.lowercase", True)
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": vocabulary.truth("normalizer.strip_accents", lower),
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template(vocabulary, single, [*single, ("B", 1), (last, 1)]),
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": CONTINUES,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": vocab,
        },
    }


def piece_of(vocabulary: TokenList, index: int) -> str:
    """Returns a stored piece in the form of a WordPiece vocabulary. A text in brackets stays as it is, even if its type
    is not CONTROL, because older converters stored all such texts unchanged."""
    text = vocabulary.tokens[index]
    if vocabulary.types[index] in (CONTROL, UNKNOWN) or (text.startswith("[") and text.endswith("]")):
        return text
    return text.removeprefix(SPACE) if text.startswith(SPACE) else CONTINUES + text


def _special(vocabulary: TokenList, name: str) -> str:
    found = vocabulary.text_of(f"{name}_token_id")
    usual = USUAL_IDS[name]
    if found is None and usual < len(vocabulary.tokens):
        found = vocabulary.tokens[usual]
    if not found:
        raise CorruptModel(
            f"{vocabulary.place} does not say which token its {name} is.",
            why=f"{PREFIX}{name}_token_id is missing or beyond the {len(vocabulary.tokens):,} tokens.",
            fix="Download the file again, or use the original checkpoint.",
        )
    return found


def unigram(vocabulary: TokenList) -> dict[str, Any]:
    """Returns the members of tokenizer.json for `t5`. Raises CorruptModel."""
    scores = vocabulary.values.get(PREFIX + "scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(vocabulary.tokens) or not np.isfinite(scores).all():
        raise corrupt(vocabulary.place, "tokenizer.ggml.scores is not one number for each token")
    unknown = vocabulary.id_of("unknown_token_id")
    if unknown is None:
        unknown = vocabulary.types.index(UNKNOWN) if UNKNOWN in vocabulary.types else None
    if unknown is None:
        raise corrupt(vocabulary.place, "it does not say which of its tokens is the unknown one")
    # Rows that only pad the table are no pieces: their scores would count as the lowest.
    used = max(index for index, kind in enumerate(vocabulary.types) if kind != UNUSED or index == unknown) + 1
    words = vocabulary.truth("remove_extra_whitespaces", True)
    scheme = "always" if vocabulary.truth("add_space_prefix", True) else "never"
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    steps = [*([{"type": "WhitespaceSplit"}] if words else []), space]
    return {
        "normalizer": _charsmap(vocabulary),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": around(vocabulary, begins=False, ends=True),
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": unknown,
            "vocab": [[vocabulary.tokens[index], float(scores[index])] for index in range(used)],
            "byte_fallback": BYTE in vocabulary.types,
        },
    }


def _charsmap(vocabulary: TokenList) -> dict[str, Any] | None:
    """Returns SentencePiece's table of characters that are replaced; None where there is none. The table is checked,
    because the library reads outside of a table that is not sound, and stops. Raises CorruptModel."""
    stored = vocabulary.values.get(PREFIX + "precompiled_charsmap")
    if stored is None or (isinstance(stored, np.ndarray) and not len(stored)):
        return None
    if not isinstance(stored, np.ndarray) or stored.dtype.itemsize != 1 or not is_sound_charsmap(stored.tobytes()):
        raise corrupt(vocabulary.place, "tokenizer.ggml.precompiled_charsmap is no table of characters")
    text = base64.b64encode(stored.tobytes()).decode()
    return {"type": "Precompiled", "precompiled_charsmap": text}


def is_sound_charsmap(data: bytes) -> bool:
    """Returns whether a walk through the trie never leaves it, and whether each value that the trie gives is the
    position where a character of the texts begins.

    data: the trie's size in bytes (u32), its units (u32 each), texts that each end in a zero byte.
    """
    size = int.from_bytes(data[:4], "little")
    texts = np.frombuffer(data[4 + size :], np.uint8)
    if size == 0 or size % (4 * UNITS_OF_BLOCK) or size + 4 > len(data):
        return False
    try:
        texts.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    units = np.frombuffer(data, "<u4", size // 4, 4)
    inner = np.flatnonzero(units < LEAF)
    offsets = (units[inner].astype(np.int64) >> 10) << np.where(units[inner] & EXTENDED, 8, 0)
    reached = inner ^ offsets
    if (reached >= len(units)).any():
        return False
    values = (units[reached[(units[inner] & HAS_LEAF) > 0]] & (LEAF - 1)).astype(np.int64)
    if (values >= len(texts)).any():
        return False
    return not ((texts[values] & 0xC0) == 0x80).any()
