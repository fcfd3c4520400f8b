"""Reads the header of a GGUF file piece by piece. Memory is allocated for a number in the file only if the file is
large enough for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import islice, repeat
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from twostroke.system import here
from twostroke.types.errors import CorruptModel
from twostroke.weights.json_file import DOWNLOAD_AGAIN

MAX_HEADER_BYTES = 256 << 20
MAX_KEYS = 65_536
MAX_STRINGS = 1 << 22
"""The most strings of all arrays together: each string costs memory of its own, however short it is."""
MAX_KEY_BYTES = 65_535
FIRST_READ_BYTES = 4 << 20
SCANNED_BYTES = 1 << 18
"""The number of bytes that are searched for strings at a time: the results stay in the processor's cache."""

TOKENIZER = "tokenizer."
"""The beginning of the keys from which the tokenizer is made: texts in their values must be valid UTF-8. Other texts,
such as descriptions, need not be."""
STRING, ARRAY, BOOL, F32 = 8, 9, 7, 6
SCALARS: dict[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""Type number -> NumPy's name of the stored number."""

_U64 = struct.Struct("<Q")


class StoredStrings:
    """An array of strings as it lies in a header: each is 8 bytes of length and its text.

    No object is made of a string before it is asked for. A vocabulary has hundreds of thousands of strings, and a start
    that finds its tokenizer.json needs none of them.
    """

    def __init__(self, stored: bytes, count: int) -> None:
        """stored: the bytes of exactly `count` strings, which the reader has counted."""
        self._stored = stored
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """Yields the strings as bytes, not decoded."""
        at, stored, unpack = 0, self._stored, _U64.unpack_from
        for _ in repeat(None, self._count):
            begin = at + 8
            at = begin + unpack(stored, at)[0]
            yield stored[begin:at]

    def __repr__(self) -> str:
        return f"{list(islice(self, 4))}, {self._count:,} strings"


Value = str | int | float | bool | NDArray[Any] | StoredStrings | list[bytes]
"""A value of a key: arrays of numbers are NumPy arrays; arrays of strings are StoredStrings, or lists in files that are
still to be written."""


class HeaderReader:
    """Reads forward through the beginning of an open file. Every method raises CorruptModel."""

    def __init__(self, descriptor: int, file_bytes: int, place: str) -> None:
        self.at = 0
        self.file_bytes = file_bytes
        self.place = place
        self._descriptor = descriptor
        self._buffer = b""
        self._strings = 0

    @property
    def header(self) -> bytes:
        """All bytes that were read so far."""
        return self._buffer[: self.at]

    def number(self, type_number: int) -> Any:
        """Reads one stored number and returns it as a Python number."""
        dtype = np.dtype(SCALARS[type_number])
        begin = self._take(dtype.itemsize)
        stored = np.frombuffer(self._buffer, dtype, 1, begin)[0]
        if type_number == F32:
            return float(str(stored))  # the file means 1e-5, not the nearest float32
        found = stored.item()
        if type_number != BOOL:
            return found
        if found not in (0, 1):
            self.refuse(f"a truth value is stored as {found}")
        return bool(found)

    def u32(self) -> int:
        """Reads an unsigned number of 4 bytes."""
        return int(self.number(4))

    def u64(self) -> int:
        """Reads an unsigned number of 8 bytes."""
        return int(self.number(10))

    def text(self, what: str, max_bytes: int, errors: str = "strict") -> str:
        """Reads a string in UTF-8 of at most max_bytes. what: the name of the string in messages. errors: the argument
        of bytes.decode."""
        length = self.u64()
        if length > min(max_bytes, self.file_bytes - self.at):
            self.refuse(f"{what} claims {length:,} bytes")
        begin = self._take(length)
        try:
            return self._buffer[begin : self.at].decode("utf-8", errors)
        except UnicodeDecodeError:
            self.refuse(f"{what} is not UTF-8")

    def values(self, count: int) -> dict[str, Value]:
        """Reads `count` keys with their values."""
        if count > min(MAX_KEYS, (self.file_bytes - self.at) // 13):
            self.refuse(f"it claims {count:,} keys")
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self.text("a key", MAX_KEY_BYTES)
            if key in found:
                self.refuse(f"it has the key {key[:100]!r} twice")
            found[key] = self._value(self.u32(), key)
        return found

    def refuse(self, why: str) -> NoReturn:
        """Raises the error for a file that is not sound."""
        raise corrupt(self.place, why)

    def _value(self, type_number: int, key: str) -> Value:
        if type_number == STRING:
            errors = "strict" if key.startswith(TOKENIZER) else "replace"
            return self.text(f"the value of {key[:100]!r}", MAX_HEADER_BYTES, errors)
        if type_number == ARRAY:
            return self._array(key)
        if type_number not in SCALARS:
            self.refuse(f"the key {key[:100]!r} has the unknown type {type_number}")
        found: Value = self.number(type_number)
        return found

    def _array(self, key: str) -> Value:
        type_number, count = self.u32(), self.u64()
        if type_number == ARRAY:
            self.refuse(f"the key {key[:100]!r} holds arrays of arrays, which no model needs")
        if type_number == STRING:
            return self._strings_of(key, count)
        if type_number not in SCALARS:
            self.refuse(f"the array {key[:100]!r} has the unknown type {type_number}")
        dtype = np.dtype(SCALARS[type_number])
        if count > (self.file_bytes - self.at) // dtype.itemsize:
            self.refuse(f"the array {key[:100]!r} claims {count:,} elements")
        begin = self._take(count * dtype.itemsize)
        return np.frombuffer(self._buffer[begin : self.at], dtype)

    def _strings_of(self, key: str, count: int) -> StoredStrings:
        """Reads an array of strings without decoding them: it only moves from each length to the next, up to the end of
        the last string."""
        self._strings += count
        if count > (self.file_bytes - self.at) // 8 or self._strings > MAX_STRINGS:
            self.refuse(f"the array {key[:100]!r} claims {count:,} strings")
        at, left = self.at, count
        while left:
            buffer = self._buffer if at + 8 <= len(self._buffer) else self._more(at, 8)
            passed, at = strings_within(buffer, at, left)
            left -= passed
        begin = self._take(at - self.at)
        return StoredStrings(self._buffer[begin : self.at], count)

    def _take(self, num_bytes: int) -> int:
        """Moves forward by `num_bytes`; returns the place in the buffer where these bytes begin."""
        begin = self.at
        if begin + num_bytes > len(self._buffer):
            self._more(begin, num_bytes)
        self.at = begin + num_bytes
        return begin

    def _more(self, at: int, num_bytes: int) -> bytes:
        """Returns the buffer, grown to hold [at, at + num_bytes)."""
        end = at + num_bytes
        if end > self.file_bytes:
            self.refuse("it ends inside its header")
        if end > MAX_HEADER_BYTES:
            self.refuse(f"its header has more than {MAX_HEADER_BYTES:,} bytes")
        wanted = min(self.file_bytes, max(end, 2 * len(self._buffer), FIRST_READ_BYTES))
        pieces = [self._buffer]
        have = len(self._buffer)
        while have < wanted:
            try:
                piece = here.read_at(self._descriptor, wanted - have, have)
            except OSError as error:
                self.refuse(f"it cannot be read: {error.strerror}")
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        self._buffer = b"".join(pieces)
        if have < end:
            self.refuse("it ends inside its header")
        return self._buffer


def strings_within(buffer: bytes, at: int, count: int) -> tuple[int, int]:
    """Scans the next SCANNED_BYTES from `at`, where `count` strings follow each other. Returns the number of strings
    that begin there, and the place at which the next one begins. At least 8 bytes must be in the buffer.

    A string begins with its length in 8 bytes. A length below 256 is one byte and seven zeros, so NumPy finds all such
    lengths at once. NumPy also finds at once which strings end where the next one begins. A loop in Python from length
    to length takes ten times as long.
    """
    seen = np.frombuffer(buffer, np.uint8, min(SCANNED_BYTES, len(buffer) - at), at)
    zero = seen == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    begins = np.flatnonzero(four[1:-3] & four[4:])
    after = begins + 8 + seen[begins]
    breaks = np.append(np.flatnonzero(after[:-1] != begins[1:]), len(begins) - 1)
    passed = place = 0
    while passed < count and place + 8 <= len(seen):
        index = int(np.searchsorted(begins, place))
        if index < len(begins) and begins[index] == place:
            last = int(breaks[np.searchsorted(breaks, index)])
            last = min(last, index + count - passed - 1)
            passed, place = passed + last - index + 1, int(after[last])
        else:  # a string that is longer
            passed, place = passed + 1, place + 8 + _U64.unpack_from(buffer, at + place)[0]
    return passed, at + place


def corrupt(place: str, why: str) -> CorruptModel:
    """Returns the error for a file that is not sound."""
    return CorruptModel(f"{place} is not a sound GGUF file.", why=f"{why[:1].upper()}{why[1:]}.", fix=DOWNLOAD_AGAIN)


def texts_of(values: Mapping[str, Value], key: str, place: str) -> list[str]:
    """Returns an array of strings, decoded; empty where the key is absent. Raises CorruptModel."""
    found = values.get(key)
    if found is None:
        return []
    if not isinstance(found, StoredStrings | list):
        raise corrupt(place, f"{key} is not an array of strings")
    try:
        return [item.decode("utf-8") for item in found]
    except UnicodeDecodeError:
        raise corrupt(place, f"{key} holds a string that is not UTF-8") from None
