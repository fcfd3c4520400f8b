"""Reads K and V of whole pages from the pool as bytes, and writes them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.engine.disk.parts import STATES
from twostroke.ops.step_memory import StepMemory


class PoolPages:
    """Reads and writes pages, and states, of the KV cache as bytes. The bytes of one page are those of all layers of
    its cache group, in the order of the layers. Satisfies replica.page_exchange.PageStore and disk.parts.PartMemory."""

    def __init__(self, memory: StepMemory) -> None:
        self._groups = [memory.layers_of(group) for group in range(len(memory.page_inputs))]
        self._states = memory.states
        self._bytes = [sum(layer.data[0].nbytes for layer in layers) for layers in self._groups]
        self.page_bytes = sum(self._bytes)

    def read(self, page_ids: Sequence[int]) -> bytes:
        return _bytes_of(self._pages(page_ids))

    def write(self, page_ids: Sequence[int], data: bytes) -> None:
        _fill(self._pages(page_ids), data)

    def part_bytes(self, group: int) -> int:
        return int(self._states[0].nbytes if group == STATES else self._bytes[group])

    def read_part(self, group: int, place: int) -> bytes:
        return _bytes_of(self._arrays(group, place))

    def write_part(self, group: int, place: int, data: bytes) -> None:
        _fill(self._arrays(group, place), data)

    def _arrays(self, group: int, place: int) -> Iterator[NDArray[Any]]:
        return iter((self._states[place],)) if group == STATES else (layer.data[place] for layer in self._groups[group])

    def _pages(self, page_ids: Sequence[int]) -> Iterator[NDArray[Any]]:
        for layers, page_id in zip(self._groups, page_ids, strict=True):
            for layer in layers:
                yield layer.data[page_id]


def _bytes_of(arrays: Iterable[NDArray[Any]]) -> bytes:
    return b"".join(array.tobytes() for array in arrays)


def _fill(arrays: Iterable[NDArray[Any]], data: bytes) -> None:
    """Writes these bytes into the arrays, one array after the other."""
    at = 0
    for array in arrays:
        array[...] = np.frombuffer(data, array.dtype, array.size, at).reshape(array.shape)
        at += array.nbytes
