"""Turns token ids into text, one at a time: the joined pieces are the whole text, and no character is ever split.

    detokenizer = detokenizer_for(tokenizer, context_ids)
    text = "".join(detokenizer.feed(token_id) for token_id in ids) + detokenizer.finish()

Bytes of an unfinished character are held back. Bytes that can never become a character turn into U+FFFD as soon as that
is sure. The text differs from that of all tokens decoded at once in one case, on purpose. In byte-fallback vocabularies
(Llama 2) an invalid byte makes `decode` replace the whole run of byte tokens around it. A detokenizer leaves the valid
text that was already streamed unchanged.
"""

from __future__ import annotations

import codecs
import copy
import itertools
from collections.abc import Sequence
from typing import Protocol

CONTEXT_TOKENS = 6  # enough tokens of the prompt's end to place spaces


class Vocabulary(Protocol):
    """The part of a tokenizer that a detokenizer needs."""

    byte_level: bool
    special_ids: frozenset[int]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of all ids."""

    def has(self, token_id: int) -> bool:
        """Returns True for an id of the vocabulary."""

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes of one token."""


class Detokenizer(Protocol):
    """Turns the tokens of one answer into text: `feed(token_id)` returns new text, and `finish()` returns the rest."""

    @property
    def holding(self) -> bool:
        """True while the last token's text has not been returned yet."""

    def fork(self) -> Detokenizer:
        """Returns another detokenizer that has been fed the same tokens."""

    def feed(self, token_id: int) -> str:
        """Returns the text that became certain with this token."""

    def finish(self) -> str:
        """Returns the text that was held back; bytes that form no character become U+FFFD."""


def detokenizer_for(vocabulary: Vocabulary, context_ids: Sequence[int] = ()) -> Detokenizer:
    """Returns the detokenizer for this kind of vocabulary. context_ids: the tokens before the first one, which decide
    about a space in front of it."""
    if vocabulary.byte_level:
        return ByteDetokenizer(vocabulary)
    return WindowDetokenizer(vocabulary, context_ids)


def showing(vocabulary: Vocabulary, token_ids: frozenset[int]) -> Vocabulary:
    """Returns the vocabulary with these special tokens as part of the text, although special tokens have no text
    otherwise."""
    return _Showing(vocabulary, token_ids) if token_ids else vocabulary


class _Showing:
    def __init__(self, vocabulary: Vocabulary, token_ids: frozenset[int]) -> None:
        self._vocabulary = vocabulary
        self._shown = token_ids & vocabulary.special_ids
        self.byte_level = vocabulary.byte_level
        self.special_ids = vocabulary.special_ids - token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of all ids; consecutive ordinary tokens are decoded together."""
        texts: list[str] = []
        for shown, run in itertools.groupby(token_ids, self._shown.__contains__):
            ids = list(run)
            plain = self._vocabulary.decode(ids) if not shown else b"".join(map(self.token_bytes, ids)).decode()
            texts.append(plain)
        return "".join(texts)

    def has(self, token_id: int) -> bool:
        return self._vocabulary.has(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        return self._vocabulary.token_bytes(token_id)


class ByteDetokenizer:
    """Detokenizes vocabularies whose tokens are byte strings; an incremental UTF-8 decoder is enough for them.
    Satisfies `Detokenizer`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._special_ids = vocabulary.special_ids
        self._token_bytes = vocabulary.token_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._holding = False

    @property
    def holding(self) -> bool:
        return self._holding

    def fork(self) -> ByteDetokenizer:
        made = copy.copy(self)
        made._utf8 = copy.copy(self._utf8)
        return made

    def feed(self, token_id: int) -> str:
        """Returns the characters that this token completes; special tokens have no text."""
        if token_id in self._special_ids:
            return ""
        data = self._token_bytes(token_id)
        if not self._holding and data.isascii():
            return data.decode("ascii")
        text = self._utf8.decode(data)
        self._holding = bool(self._utf8.getstate()[0])
        return text

    def finish(self) -> str:
        """Returns U+FFFD where the text ends within a character."""
        self._holding = False
        return self._utf8.decode(b"", final=True)


class WindowDetokenizer:
    """Detokenizes vocabularies whose tokens are not plain byte strings, such as those of SentencePiece. It decodes a
    short window twice, with and without the new tokens. The difference is new text.

    Invariant: `_ids[:_read]` is delivered and gives `_read_text`; `_ids[_read:]` is held, at most three tokens of one
    unfinished character. Special tokens never enter the window, so its first token has text. Some decoders treat the
    first token of a text differently. Both decodes begin with the same token, so this changes no text but that of the
    very first token. Satisfies `Detokenizer`.
    """

    def __init__(self, vocabulary: Vocabulary, context_ids: Sequence[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")  # only the decoder's state is used
        tail = list(context_ids[-CONTEXT_TOKENS:])
        self._ids = [token_id for token_id in tail if self._has_text(token_id)]
        self._read = len(self._ids)
        self._read_text = vocabulary.decode(self._ids)

    @property
    def holding(self) -> bool:
        return len(self._ids) > self._read

    def fork(self) -> WindowDetokenizer:
        made = copy.copy(self)
        made._utf8, made._ids = copy.copy(self._utf8), list(self._ids)
        return made

    def feed(self, token_id: int) -> str:
        """Returns the text that is certain after this token."""
        if not self._has_text(token_id):
            return ""
        self._ids.append(token_id)
        self._utf8.decode(self._vocabulary.token_bytes(token_id))
        return "" if self._utf8.getstate()[0] else self._deliver()

    def finish(self) -> str:
        return self._deliver() if self.holding else ""

    def _deliver(self) -> str:
        text = self._vocabulary.decode(self._ids)
        if text.startswith(self._read_text):
            piece = text[len(self._read_text) :]
        else:  # an invalid byte changed how the delivered bytes before it decode
            piece = self._vocabulary.decode(self._ids[self._read :])
        self._ids = self._ids[self._read :]
        self._read = len(self._ids)
        self._read_text = self._vocabulary.decode(self._ids)
        return piece

    def _has_text(self, token_id: int) -> bool:
        return token_id not in self._vocabulary.special_ids and self._vocabulary.has(token_id)
