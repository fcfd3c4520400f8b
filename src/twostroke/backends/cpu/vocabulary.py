"""A vocabulary with merges that native code reads and encodes with, without the interpreter's lock."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.backends.cpu.library import Signatures, declared, lowest_library
from twostroke.text.tokenizer_file import TokenizerFile
from twostroke.types.errors import TokenizerFailed

_P, _I, _L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
SIGNATURES: Signatures = {
    "ts_vocabulary_tokens": (_L, [_P, _L, _P, _P, _P, _P, _L]),
    "ts_vocabulary_index": (_I, [_P, _P, _P, _P, _L]),
    "ts_vocabulary_merges": (_L, [_P, _P, _L]),
    "ts_vocabulary_find": (_I, [_P, _P, _L]),
    "ts_vocabulary_encode": (_L, [_P, _P, _L, _P, _L, _P, _P]),
}
WORD_SCRATCH = 13
"""TS_WORD_SCRATCH of vocabulary_abi.h."""
FEWEST_BYTES_OF_A_TOKEN = 6
"""The bytes of `"a":1,`."""
Bytes = NDArray[np.uint8]
COPIED = 64 * 1024
"""The numbers that are copied at a time, so that other threads run in between."""


class VocabularyStruct(ctypes.Structure):
    """The C struct ts_vocabulary."""

    _fields_ = [
        ("texts", ctypes.c_void_p),
        ("begins", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("num_ids", ctypes.c_int64),
        ("slots", ctypes.c_void_p),
        ("num_slots", ctypes.c_int64),
        ("merges", ctypes.c_void_p),
        ("num_merges", ctypes.c_int64),
        ("bytes", ctypes.c_int32 * 256),
        ("whole_words", ctypes.c_int32),
    ]


class NativeVocabulary:
    """Satisfies `merged_library.Vocabulary`. The merges are read by a thread of their own, and `encode` waits for it.

    size: the number of tokens.
    """

    def __init__(self, tokens: Bytes, merges: Bytes, *, whole_words: bool, byte_fallback: bool) -> None:
        """tokens, merges: JSON; see vocabulary_abi.h. whole_words: a word that is a token is this token, whatever its
        merges. byte_fallback: tokens <0xNN> write the bytes of characters without a token. Raises ValueError where the
        tokens have a form that native code does not read, AttributeError where the library has no such functions."""
        self._library = declared(lowest_library(), SIGNATURES)
        self._struct = VocabularyStruct(whole_words=int(whole_words))
        self._read_tokens(tokens)
        self._byte_tokens = [self.id_of(f"<0x{byte:02X}>") if byte_fallback else None for byte in range(256)]
        self._struct.bytes[:] = [-1 if token is None else token for token in self._byte_tokens]
        self._status = 0
        self._reading = threading.Thread(target=self._read_merges, args=(merges,), name="merges")
        self._reading.start()

    def _read_tokens(self, json: Bytes) -> None:
        capacity = len(json) // FEWEST_BYTES_OF_A_TOKEN + 1
        texts = np.empty(len(json), np.uint8)
        begins, (sizes, ids) = np.empty(capacity, np.uint32), np.empty((2, capacity), np.int32)
        places = (begins.ctypes.data, sizes.ctypes.data, ids.ctypes.data)
        count = self._library.ts_vocabulary_tokens(json.ctypes.data, len(json), texts.ctypes.data, *places, capacity)
        if count <= 0:
            raise ValueError(f"the tokens have another form: status {count}")
        num_ids = int(ids[:count].max()) + 1
        if num_ids > 4 * count + 1024:
            raise ValueError(f"the largest id is {num_ids - 1:,}, and there are {count:,} tokens")
        self.size = int(count)
        self._texts = texts[: int(begins[count - 1]) + int(sizes[count - 1])].tobytes()
        self._begins, self._sizes = np.zeros(num_ids, np.uint32), np.full(num_ids, -1, np.int32)
        self._slots = np.full((_power_above(count), 2), -1, np.int32)
        struct = self._struct
        struct.texts = ctypes.cast(self._texts, ctypes.c_void_p)
        struct.begins, struct.sizes, struct.num_ids = self._begins.ctypes.data, self._sizes.ctypes.data, num_ids
        struct.slots, struct.num_slots = self._slots.ctypes.data, len(self._slots)
        status = self._library.ts_vocabulary_index(ctypes.byref(struct), *places, count)
        if status:
            raise ValueError(f"two tokens have the same text or id: status {status}")

    def _read_merges(self, json: Bytes) -> None:
        most = max(np.count_nonzero(json == ord("[")), np.count_nonzero(json == ord('"')) // 2)
        self._merges = np.full((_power_above(int(most)), 4), -1, np.int32)
        self._struct.merges, self._struct.num_merges = self._merges.ctypes.data, len(self._merges)
        self._status = self._library.ts_vocabulary_merges(ctypes.byref(self._struct), json.ctypes.data, len(json))

    def sound(self) -> bool:
        """Waits until the merges are read. Returns False where they have another form."""
        self._reading.join()
        return self._status >= 0

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token, by its text; None where there is none."""
        try:
            text = token.encode("utf-8")
        except UnicodeEncodeError:
            return None
        found = int(self._library.ts_vocabulary_find(ctypes.byref(self._struct), text, len(text)))
        return None if found < 0 else found

    def text_of(self, token_id: int) -> str | None:
        """Returns the text of a token, by its id; None where there is none."""
        if not 0 <= token_id < len(self._sizes) or (size := int(self._sizes[token_id])) < 0:
            return None
        begin = int(self._begins[token_id])
        return self._texts[begin : begin + size].decode("utf-8")

    def writes_bytes(self) -> bool:
        """Returns whether each byte of a character without a token has a token."""
        return None not in self._byte_tokens

    def encode(self, pieces: Sequence[int], added: Sequence[int]) -> list[int]:
        """Returns the ids of words. pieces, added: see `ts_vocabulary_encode`. Raises TokenizerFailed where these are
        none."""
        count = len(pieces)
        given, ids, more = np.empty(count, np.int32), np.empty(count, np.int32), np.array([*added, 0], np.int32)
        for first in range(0, count, COPIED):
            given[first : first + COPIED] = pieces[first : first + COPIED]
        scratch = np.empty(WORD_SCRATCH * count + 1, np.int32)
        self._reading.join()
        where: tuple[Any, ...] = (given.ctypes.data, count, more.ctypes.data, len(added))
        made = self._library.ts_vocabulary_encode(
            ctypes.byref(self._struct), *where, scratch.ctypes.data, ids.ctypes.data
        )
        if made < 0:
            raise TokenizerFailed("The model's tokenizer failed on this text.", why=f"The native status is {made}.")
        found: list[int] = ids[:made].tolist()
        return found


def _power_above(count: int) -> int:
    """Returns a power of two of which `count` fill at most half."""
    return 2 << max(4, count.bit_length())


def native_vocabulary(file: TokenizerFile) -> NativeVocabulary:
    """Satisfies `merged_library.MakeVocabulary`."""
    model = file.model
    options = {"whole_words": bool(model.ignore_merges), "byte_fallback": bool(model.byte_fallback)}
    tokens, merges = (np.frombuffer(memoryview(part), np.uint8) for part in (model.vocab, model.merges))
    return NativeVocabulary(tokens, merges, **options)
