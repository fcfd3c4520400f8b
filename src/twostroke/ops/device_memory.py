"""Where the arrays of a step lie: in this process's memory, or on a device."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes. Rows that begin within a cache line lie in two."""


class DeviceMemory(Protocol):
    """Makes arrays that one backend reads and writes."""

    def empty(self, num_bytes: int) -> NDArray[np.uint8]:
        """(num_bytes,) uint8 of any content, at a multiple of 64 bytes."""

    def zeros(self, num_bytes: int) -> NDArray[np.uint8]:
        """(num_bytes,) uint8 zeros, at a multiple of 64 bytes."""

    def put(self, host: NDArray[Any]) -> NDArray[Any]:
        """An array with these numbers in the memory that the backend reads."""

    def write(self, array: NDArray[Any], host: NDArray[Any]) -> None:
        """array = host, of the same shape and dtype. array was made here, or is a contiguous part of one that was.
        Any thread may call it."""

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        """The numbers of an array that was made here, to be read by this process; after all work before it."""

    def copy_row(self, array: NDArray[Any], source: int, target: int) -> None:
        """array[target] = array[source], for an array made here; after all work before it."""

    def clear_row(self, array: NDArray[Any], row: int) -> None:
        """array[row] = 0, for an array made here; after all work before it."""

    def inputs(self, num_bytes: int) -> NDArray[np.uint8]:
        """(num_bytes,) uint8 zeros in this process's memory: what the host writes before each step and the backend
        reads in it."""


class HostMemory:
    """This process's memory: satisfies DeviceMemory. Pages that were never touched take none."""

    def empty(self, num_bytes: int) -> NDArray[np.uint8]:
        """See DeviceMemory."""
        return _aligned(np.empty(num_bytes + ALIGNMENT, np.uint8), num_bytes)

    def zeros(self, num_bytes: int) -> NDArray[np.uint8]:
        """See DeviceMemory."""
        return _aligned(np.zeros(num_bytes + ALIGNMENT, np.uint8), num_bytes)

    def put(self, host: NDArray[Any]) -> NDArray[Any]:
        """See DeviceMemory."""
        return host

    def write(self, array: NDArray[Any], host: NDArray[Any]) -> None:
        """See DeviceMemory."""
        array[...] = host

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        """See DeviceMemory: the array itself."""
        return array

    def copy_row(self, array: NDArray[Any], source: int, target: int) -> None:
        """See DeviceMemory."""
        array[target] = array[source]

    def clear_row(self, array: NDArray[Any], row: int) -> None:
        """See DeviceMemory."""
        array[row] = 0

    def inputs(self, num_bytes: int) -> NDArray[np.uint8]:
        """See DeviceMemory."""
        return self.zeros(num_bytes)


def _aligned(room: NDArray[np.uint8], num_bytes: int) -> NDArray[np.uint8]:
    aligned: NDArray[np.uint8] = room[-room.ctypes.data % ALIGNMENT :][:num_bytes]
    return aligned


HOST = HostMemory()
