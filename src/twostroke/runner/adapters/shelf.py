"""Loads and unloads the adapters of an engine by name, and lends them to requests. Any thread may use this module.

After an adapter is unloaded, no new request can ask for it. Its slot is free when the last request that uses it has
ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from twostroke.runner.adapters.bank import AdapterBank
from twostroke.runner.adapters.lora_folder import LoraFolder, named_errors
from twostroke.types.adapter import TakenAdapter
from twostroke.types.errors import ConfigError, InvalidRequest
from twostroke.weights.loaded import ModelWeights

OpenFolder = Callable[[Path], LoraFolder]


class LoadedAdapter(Struct, frozen=True):
    """An adapter that requests can ask for. path: the folder from which it was loaded. taken: the slot and the salt
    that its requests get."""

    name: str
    path: Path
    taken: TakenAdapter


class AdapterShelf:
    """The adapters of an engine. open_folder: opens a folder and checks it against the model."""

    def __init__(self, bank: AdapterBank, open_folder: OpenFolder) -> None:
        self._bank, self._open_folder = bank, open_folder
        self._reserved: tuple[str, ...] = ()
        self._loading = threading.Lock()  # one load at a time, because reading takes a while
        self._changed = threading.Lock()  # guards all fields below
        self._loaded: dict[str, LoadedAdapter] = {}
        self._uses = [0] * bank.count
        self._names = [""] * bank.count  # the name of the last adapter in each slot

    def beside(self, weights: ModelWeights) -> ModelWeights:
        """Returns the model's weights together with the adapters' banks."""
        matrices, vectors = self._bank.matrices, self._bank.vectors
        return ModelWeights({**weights.matrices, **matrices}, {**weights.vectors, **vectors}, weights.mapped)

    def reserve(self, name: str) -> None:
        """Keeps a name for the model, so that no adapter may have it. Raises ConfigError where an adapter already has
        it."""
        self._reserved += (name,)
        with self._changed:
            if name in self._loaded:
                raise _taken_name(name)

    def loaded(self) -> tuple[LoadedAdapter, ...]:
        """The loaded adapters, in the order in which they were loaded."""
        with self._changed:
            return tuple(self._loaded.values())

    @property
    def places(self) -> int:
        """The number of adapters that can be used at once."""
        return len(self._uses)

    def name_of(self, slot: int) -> str:
        """Returns the name of the adapter in a slot that requests use, even where the adapter was unloaded meanwhile.
        """
        return self._names[slot]

    def load(self, name: str, path: Path, *, again: bool = False) -> None:
        """Reads an adapter into a free slot. again: whether it may replace a loaded adapter of this name.

        Raises ConfigError; then nothing has changed.
        """
        with self._loading:
            self._require_new(name, again)
            slot = self._free_slot()
            with named_errors(name), self._open_folder(path) as folder:
                self._bank.fill(slot, folder)
                taken = TakenAdapter(slot, f"\0adapter {folder.fingerprint()} ")
            with self._changed:
                self._loaded[name] = LoadedAdapter(name, path, taken)
                self._names[slot] = name

    def unload(self, name: str) -> None:
        """Unloads an adapter. Requests that use it continue with it. Raises InvalidRequest for a name that is not
        loaded."""
        with self._changed:
            self._require(name)
            del self._loaded[name]

    def check(self, name: str | None) -> None:
        """Raises InvalidRequest for a name that is not loaded."""
        if name is not None:
            with self._changed:
                self._require(name)

    def take(self, name: str) -> TakenAdapter:
        """Takes an adapter for a request that begins. The adapter stays in its slot until the request gives it back.
        Raises InvalidRequest for a name that is not loaded."""
        with self._changed:
            taken = self._require(name).taken
            self._uses[taken.slot] += 1
            return taken

    def give_back(self, slot: int) -> None:
        """Gives back a slot, because a request that had taken it has ended."""
        with self._changed:
            self._uses[slot] -= 1

    def _require(self, name: str) -> LoadedAdapter:
        if name not in self._loaded:
            raise InvalidRequest(
                f"No adapter {name[:100]!r} is loaded.", param="model", code="model_not_found", fix="Load it first."
            )
        return self._loaded[name]

    def _require_new(self, name: str, again: bool) -> None:
        with self._changed:
            if name in self._reserved:
                raise _taken_name(name)
            if name in self._loaded and not again:
                raise ConfigError(
                    f"An adapter {name!r} is loaded already.", fix="Unload it first, or give it another name."
                )

    def _free_slot(self) -> int:
        with self._changed:
            held = {each.taken.slot for each in self._loaded.values()}
            free = [slot for slot, uses in enumerate(self._uses) if not uses and slot not in held]
        if not free:
            raise ConfigError(
                f"All {self._bank.count} places for adapters are taken.",
                why="An unloaded adapter keeps its place until the last request that uses it ends.",
                fix="Unload one, or start the engine with a larger --max-adapters.",
            )
        return free[0]


def _taken_name(name: str) -> ConfigError:
    return ConfigError(f"No adapter may be called {name!r}: the model has this name.", fix="Give it another name.")
