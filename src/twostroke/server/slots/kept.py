"""The content of llama.cpp's slots: the tokens of the last answer of each client and slot number, in memory, and saved
slots in files.

K and V themselves are pages of the prefix cache and of the disk, which are found by tokens. So a slot only needs its
tokens.
"""

from __future__ import annotations

import array
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from twostroke.engine.disk.contract import DiskCounts
from twostroke.server.stored.records import Bounds, Records
from twostroke.types.output import Prompt
from twostroke.types.reading.decoders import json_decoder

MOST_HELD, MAX_SAVED, MAX_BYTES = 64, 256, 256 << 20
SUFFIX = ".json"


class SlotDisk(Protocol):
    """The disk that stores the pages of slots."""

    @property
    def counts(self) -> DiskCounts:
        """What the disk has written, read and lost so far."""

    @property
    def settled(self) -> bool:
        """True when no page waits to be written."""


class SlotTokens(Struct, frozen=True):
    """A prompt with its answer. salt, adapter: the salt and the adapter of the request; its pages are found only with
    both."""

    tokens: Sequence[int]
    salt: str
    adapter: str | None


class SavedSlot(Struct, frozen=True):
    """A slot of llama.cpp's API as it is saved in a file. tokens: the tokens of a prompt and its answer, by which the
    pages of K and V are found. model: the name of the model that computed them. salt, adapter: the salt and the adapter
    of the request."""

    model: str
    tokens: tuple[int, ...]
    salt: str
    adapter: str | None = None


_RECORD = json_decoder(SavedSlot)


class Slots:
    """The slots of all clients, for one event loop; only `saved` and `save` may touch a disk, and are called in
    threads. folder: the folder of saved slots."""

    def __init__(self, folder: Path, disk: SlotDisk, wall_clock: Callable[[], float] = time.time) -> None:
        self.disk = disk
        bounds = Bounds(MAX_BYTES, MAX_SAVED, math.inf, "--kv-disk")
        self._records = Records(folder, SUFFIX, bounds, wall_clock, forget_oldest=False)
        self._held: OrderedDict[tuple[str, int], SlotTokens] = OrderedDict()

    def ended(self, number: int, prompt: Prompt, answer: Sequence[int]) -> None:
        """Called when an answer with a slot number has ended: remembers the tokens of prompt and answer. Three kinds of
        requests clear the slot instead: those that keep pages off the disk, those for vectors, and those with images.
        For the last two, tokens do not describe the whole prompt."""
        client = prompt.cache_salt.partition(":")[0]
        if prompt.images or prompt.pooling is not None or prompt.disk_s < 0:
            self.erase(client, number)
            return
        tokens = array.array("i", (*prompt.token_ids, *answer))
        self.hold(client, number, SlotTokens(tokens, prompt.cache_salt, prompt.adapter))

    def hold(self, client: str, number: int, tokens: SlotTokens) -> None:
        """Sets the tokens of a slot. When there are too many slots, the slot that was set longest ago is forgotten."""
        self._held[client, number] = tokens
        self._held.move_to_end((client, number))
        if len(self._held) > MOST_HELD:
            self._held.popitem(last=False)

    def held(self, client: str, number: int) -> SlotTokens | None:
        """Returns the tokens that the slot holds; None when it holds none."""
        return self._held.get((client, number))

    def erase(self, client: str, number: int) -> int:
        """Forgets the slot's tokens, and returns how many it had. Its pages of K and V stay until room for other pages
        is needed."""
        found = self._held.pop((client, number), None)
        return 0 if found is None else len(found.tokens)

    def fits(self, client: str, name: str) -> bool:
        """Returns True when `name` is valid as the name of a saved slot."""
        return self._records.path(client, name) is not None

    def save(self, client: str, name: str, saved: SavedSlot) -> None:
        """Writes a saved slot under this name. Raises FullFolder, OSError."""
        self._records.put(client, name, msgspec.json.encode(saved))

    def saved(self, client: str, name: str) -> SavedSlot | None:
        """Returns the slot that was saved under this name; None when there is none, or when its file is damaged."""
        data = self._records.get(client, name)
        try:
            return None if data is None else _RECORD.decode(data)
        except msgspec.MsgspecError:
            return None
