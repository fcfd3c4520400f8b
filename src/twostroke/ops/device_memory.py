"""The memory in which the arrays of a step lie: that of this process, or that of a device."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""The alignment of arrays, in bytes. Without it, rows would begin within a cache line and lie in two of them."""


class DeviceMemory(Protocol):
    """Makes arrays that one backend reads and writes."""

    def empty(self, num_bytes: int) -> NDArray[np.uint8]:
        """Makes (num_bytes,) uint8 of any content, at a multiple of 64 bytes."""

    def zeros(self, num_bytes: int) -> NDArray[np.uint8]:
        """Makes (num_bytes,) uint8 zeros, at a multiple of 64 bytes."""

    def put(self, host: NDArray[Any]) -> NDArray[Any]:
        """Returns an array with the numbers of `host` in the memory that the backend reads."""

    def write(self, array: NDArray[Any], host: NDArray[Any]) -> None:
        """Copies `host` to `array`, which has the same shape and dtype. `array` was made by this object, or is a
        contiguous part of such an array. Any thread may call this method."""

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns the numbers of an array that this object made, readable by this process, after all work before the
        call has ended."""

    def copy_row(self, array: NDArray[Any], source: int, target: int) -> None:
        """Sets array[target] = array[source], after all work before the call. array: made by this object."""

    def clear_row(self, array: NDArray[Any], row: int) -> None:
        """Sets array[row] = 0, after all work before the call. array: made by this object."""

    def inputs(self, num_bytes: int) -> NDArray[np.uint8]:
        """Makes (num_bytes,) uint8 zeros in this process's memory. The host writes them before each step, and the
        backend reads them in the step."""


class HostMemory:
    """The memory of this process. Parts of an array that were never touched take no physical memory. Satisfies
    `DeviceMemory`."""

    def empty(self, num_bytes: int) -> NDArray[np.uint8]:
        return _aligned(np.empty(num_bytes + ALIGNMENT, np.uint8), num_bytes)

    def zeros(self, num_bytes: int) -> NDArray[np.uint8]:
        return _aligned(np.zeros(num_bytes + ALIGNMENT, np.uint8), num_bytes)

    def put(self, host: NDArray[Any]) -> NDArray[Any]:
        return host

    def write(self, array: NDArray[Any], host: NDArray[Any]) -> None:
        array[...] = host

    def get(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns the array itself; see DeviceMemory."""
        return array

    def copy_row(self, array: NDArray[Any], source: int, target: int) -> None:
        array[target] = array[source]

    def clear_row(self, array: NDArray[Any], row: int) -> None:
        array[row] = 0

    def inputs(self, num_bytes: int) -> NDArray[np.uint8]:
        return self.zeros(num_bytes)


def _aligned(room: NDArray[np.uint8], num_bytes: int) -> NDArray[np.uint8]:
    aligned: NDArray[np.uint8] = room[-room.ctypes.data % ALIGNMENT :][:num_bytes]
    return aligned


HOST = HostMemory()
