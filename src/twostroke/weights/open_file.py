"""An open file of tensors: read with pread into our own memory, closed once.

The file is not mapped, so a file that shrinks while it is read causes an error and not a signal.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke.system import here
from twostroke.types.errors import CorruptModel
from twostroke.weights.json_file import DOWNLOAD_AGAIN

MOST_AT_ONCE = 1 << 30
"""The most bytes of one read: the system reads at most a little less than 2 GiB."""


class OpenFile:
    """header: the bytes of the file before the data, for fingerprints."""

    def __init__(self, path: Path, descriptor: int, header: bytes) -> None:
        self.path = path
        self.header = header
        self._descriptor = descriptor

    def close(self) -> None:
        """Closes the file; reading afterwards is an error."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read_at(self, offset: int, num_bytes: int) -> bytes:
        """Returns bytes of the file, fewer at its end."""
        return here.read_at(self._descriptor, num_bytes, offset)

    def _read_into(self, target: NDArray[Any], offset: int, name: str) -> None:
        """Fills a contiguous array from the file. name: the tensor's name, for errors. Raises CorruptModel."""
        view = target.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(view):
            try:
                got = here.read_into(self._descriptor, view[done : done + MOST_AT_ONCE], offset + done)
            except OSError as error:
                raise CorruptModel(
                    f"{self.path.name} cannot be read.",
                    why=f"{error.strerror}.",
                    fix="Check the disk, download it again.",
                ) from None
            if got <= 0:
                raise CorruptModel(
                    f"{self.path.name} ends inside tensor {name[:100]}.",
                    why="The file became shorter after it was opened.",
                    fix=DOWNLOAD_AGAIN,
                )
            done += got


def check_rows(name: str, first: int, count: int, rows: int) -> None:
    """Raises IndexError where [first, first + count) is not within the rows."""
    if not (0 <= first and 0 <= count and first + count <= rows):
        raise IndexError(f"{name}: rows [{first}, {first + count}) of {rows}")
