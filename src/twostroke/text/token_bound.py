"""Computes a lower bound on a text's number of tokens, from its bytes alone. It is fast enough to refuse a long text
before the text is tokenized.

Each byte of a text counts 1/L, where L is the number of bytes of the longest token that contains this byte. The bytes
of one token then count at most 1 together. So the sum over a text's bytes is never above its number of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from twostroke.text.byte_alphabet import bytes_of

if TYPE_CHECKING:
    import tokenizers

COUNTED_BYTES = 256 * 1024
COMPOSED_SHRINK = 4
"""NFC shortens a text to no less than a third of its UTF-8 bytes (Hangul). This factor is larger by one, for safety."""

_KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace", "Split", "Punctuation"})
_SPACE_MARK = "▁"
_FIRST_COMPOSING_LEAD = 0xCC  # first byte of U+0300 in UTF-8: NFC does not change texts of characters below it
_WHITE_SPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
_WHITE_SPACE += "\u2028\u2029\u202f\u205f\u3000"


class TokenBound:
    """A lower bound on the number of tokens that a text has with one tokenizer. To make it takes a pass over the whole
    vocabulary."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        """Finds, for each byte, the length of the longest token that contains this byte. library: a tokenizer for which
        `covers_every_byte` returns True."""
        self._longest_bytes = np.zeros(256, np.int64)
        for token in sorted(_token_bytes(library), key=len, reverse=True):
            held = list(set(token))
            self._longest_bytes[held] = np.maximum(self._longest_bytes[held], len(token))
        self._shares = 1.0 / np.maximum(self._longest_bytes, 1)
        if any(token.lstrip or token.rstrip for token in library.get_added_tokens_decoder().values()):
            self._shares[list(set(_WHITE_SPACE.encode()))] = 0.0  # such a token also covers any amount of white space
        self._composes = any(step["type"] == "NFC" for step in _steps(library.normalizer, "normalizers"))

    def fewest(self, text: bytes) -> int:
        """Returns a lower bound on the number of tokens of this UTF-8 text."""
        counts = np.zeros(256, np.int64)
        for first in range(0, len(text), COUNTED_BYTES):  # counted in pieces, so that other threads run between them
            counts += np.bincount(np.frombuffer(text[first : first + COUNTED_BYTES], np.uint8), minlength=256)
        if self._composes and counts[_FIRST_COMPOSING_LEAD:].any():
            longest = int(self._longest_bytes.max())
            return 0 if not self._shares.all() else len(text) // (COMPOSED_SHRINK * max(1, longest))
        return int(float(counts @ self._shares) * (1 - 1e-9))


def covers_every_byte(library: tokenizers.Tokenizer) -> bool:
    """Returns True where each byte of a text becomes part of exactly one token, so that TokenBound's bound is right.
    The tokenizer may change the text first only by NFC and by writing spaces as another character."""
    from tokenizers import models

    if not isinstance(library.model, models.BPE):
        return False
    if not all(map(_keeps_bytes, _steps(library.normalizer, "normalizers"))):
        return False
    if not all(map(_keeps_text, _steps(library.pre_tokenizer, "pretokenizers"))):
        return False
    if getattr(library.model, "end_of_word_suffix", None) or getattr(library.model, "continuing_subword_prefix", None):
        return False
    return _has_all_bytes(library)


def _keeps_bytes(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        return bool(step.get("pattern") == {"String": " "} and step.get("content") == _SPACE_MARK)
    return step["type"] in ("NFC", "Prepend")


def _keeps_text(step: dict[str, Any]) -> bool:
    marks_space = step.get("replacement", _SPACE_MARK) == _SPACE_MARK
    return step["type"] in _KEEPING_PRE_TOKENIZERS and step.get("behavior") != "Removed" and marks_space


def _steps(part: Any, inner: str) -> Iterator[dict[str, Any]]:
    """Yields the steps of a tokenizer's normalizer or pre-tokenizer in order. A step that is a sequence is replaced by
    its own steps, which are its member `inner`."""
    waiting = [] if part is None else [json.loads(part.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting[:0] = step[inner]
        else:
            yield step


def _is_byte_level(library: tokenizers.Tokenizer) -> bool:
    return any(step["type"] == "ByteLevel" for step in _steps(library.pre_tokenizer, "pretokenizers"))


def _has_all_bytes(library: tokenizers.Tokenizer) -> bool:
    """Returns whether each byte has a token. Without a token for a byte, unknown characters would become one token
    together."""
    if _is_byte_level(library):
        from tokenizers import pre_tokenizers

        return all(library.token_to_id(character) is not None for character in pre_tokenizers.ByteLevel.alphabet())
    if not getattr(library.model, "byte_fallback", False):
        return False
    return all(library.token_to_id(f"<0x{byte:02X}>") is not None for byte in range(256))


def _token_bytes(library: tokenizers.Tokenizer) -> Iterator[bytes]:
    """Yields, for each token, the bytes that the text of this token may contain. If the token writes spaces as another
    character, the space is added to its bytes."""
    byte_level = _is_byte_level(library)
    added = library.get_added_tokens_decoder()
    for token_id in range(library.get_vocab_size(with_added_tokens=True)):
        token = library.id_to_token(token_id)
        if token is None:
            continue
        if byte_level and token_id not in added:
            yield bytes_of(token)
            continue
        yield token.encode() + (b" " if _SPACE_MARK in token else b"")
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            yield bytes.fromhex(token[3:5])
