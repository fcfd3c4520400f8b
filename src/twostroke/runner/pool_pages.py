"""K and V of whole pages as bytes, out of the pool and into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.ops.step_memory import StepMemory


class PoolPages:
    """Satisfies replica.page_exchange.PageStore. Layers of a group follow in the program's order."""

    def __init__(self, memory: StepMemory) -> None:
        self._groups = [memory.layers_of(group) for group in range(len(memory.page_inputs))]
        self.page_bytes = sum(layer.data[0].nbytes for layers in self._groups for layer in layers)

    def read(self, page_ids: Sequence[int]) -> bytes:
        """See PageStore."""
        return b"".join(page.tobytes() for page in self._pages(page_ids))

    def write(self, page_ids: Sequence[int], data: bytes) -> None:
        """See PageStore."""
        at = 0
        for page in self._pages(page_ids):
            page[...] = np.frombuffer(data, page.dtype, page.size, at).reshape(page.shape)
            at += page.nbytes

    def _pages(self, page_ids: Sequence[int]) -> Iterator[NDArray[Any]]:
        for layers, page_id in zip(self._groups, page_ids, strict=True):
            for layer in layers:
                yield layer.data[page_id]
