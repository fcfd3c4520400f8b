"""An array on a device. It has an address, a shape and strides, and no operation that would read or write its numbers.

It is not a subclass of numpy.ndarray, because NumPy copies and prints a subclass without asking it. This process must
not touch these addresses: it would be killed.
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from twostroke.types.errors import BackendError


class DeviceArray:
    """An array on a device. Views, reshapes and slices make other device arrays, as numpy's do. Every operation that
    needs the numbers is refused."""

    __array_ufunc__ = None  # numpy's operators and functions are refused

    def __init__(self, shadow: NDArray[Any]) -> None:
        self._shadow = shadow  # its data is never read: only its address, shape, strides and dtype are used

    @classmethod
    def at(cls, address: int, num_bytes: int) -> DeviceArray:
        """Returns (num_bytes,) uint8 from an address on."""
        room: Any = (ctypes.c_uint8 * num_bytes).from_address(address)
        return cls(np.ndarray((num_bytes,), np.uint8, room))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as numpy has it."""
        return self._shadow.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in bytes, as numpy has them."""
        return self._shadow.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements, as numpy has it."""
        return self._shadow.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._shadow.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._shadow.size

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self._shadow.nbytes

    @property
    def flags(self) -> Any:
        """The flags, as numpy has them."""
        return self._shadow.flags

    @property
    def ctypes(self) -> Any:
        """The ctypes object; its `data` is the address on the device."""
        return self._shadow.ctypes

    @property
    def address(self) -> int:
        """The address of the first element, on the device."""
        return int(self._shadow.ctypes.data)

    def __len__(self) -> int:
        return len(self._shadow)

    def __getitem__(self, index: Any) -> DeviceArray:
        parts = index if isinstance(index, tuple) else (index,)
        if not all(isinstance(part, slice) for part in parts):
            self._refuse()
        return DeviceArray(self._shadow[index])

    def view(self, dtype: Any) -> DeviceArray:
        """Returns this array's bytes as another dtype."""
        return DeviceArray(self._shadow.view(dtype))

    def reshape(self, *shape: Any) -> DeviceArray:
        """Returns this array's elements in another shape. Raises BackendError where the elements would have to be
        moved."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        inner = len(wanted) > 1 and -1 not in wanted and wanted[0] == self._shadow.shape[0]
        if self._shadow.flags.c_contiguous:
            return DeviceArray(self._shadow.reshape(wanted))
        if not inner or not self._shadow[:1].flags.c_contiguous:
            self._refuse()
        # The rows lie apart in memory, so only the shape within a row can change.
        one = self._shadow[:1].reshape(1, *wanted[1:])
        strides = (self._shadow.strides[0], *one.strides[1:])
        return DeviceArray(np.lib.stride_tricks.as_strided(one, wanted, strides))

    def __array__(self, *_arguments: Any, **_named: Any) -> NDArray[Any]:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __setitem__(self, _index: Any, _value: Any) -> None:
        self._refuse()

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, shape {self.shape}, at {self.address:#x})"

    def _refuse(self) -> NoReturn:
        raise BackendError(
            "The numbers of an array on a device cannot be read or written from here.",
            fix="Copy it first: CudaDevice.get, CudaDevice.put.",
        )
