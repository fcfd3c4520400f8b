"""Weights that this start has packed: memory holds them in the layout of their file, and the file is written after the
first answers.

An engine uses the memory at once. A process that ends before the file has its name leaves a partial file, which the
next start removes (`remove_abandoned`). Where the disk refuses the file, a sentence reports this, and the next start
packs again.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Callable
from typing import cast

import numpy as np

from twostroke.ops.operands import U8Array
from twostroke.system import here
from twostroke.weights.packed.file import GoOn, PartialFile, always
from twostroke.weights.packed.header import FilePlan
from twostroke.weights.packed.in_use import mark_used


class PackedImage:
    """Memory with the layout of a planned file, into which weights are packed. Satisfies `BlobTarget`. whole: all bytes
    of the file, (plan.file_bytes,) uint8; None to allocate them."""

    def __init__(self, plan: FilePlan, whole: U8Array | None = None) -> None:
        self.whole = _in_huge_pages(plan.file_bytes) if whole is None else whole
        self._extents = {extent.key: extent for extent in plan.extents}
        self._asked = {extent.key: 0 for extent in plan.extents}
        self._filled = dict(self._asked)
        self._counting = threading.Lock()

    def area(self, key: str, first_byte: int, num_bytes: int) -> U8Array:
        extent = self._extents[key]
        if first_byte != self._asked[key]:
            raise ValueError(f"{key}: bytes from {first_byte} on are out of order")
        if first_byte + num_bytes > extent.num_bytes:
            raise ValueError(f"{key}: bytes [{first_byte}, {first_byte + num_bytes}) are too many")
        self._asked[key] += num_bytes
        begin = extent.offset + first_byte
        return self.whole[begin : begin + num_bytes]

    def put(self, key: str, first_byte: int, area: U8Array) -> None:
        """Counts these bytes of the blob `key` as filled. `area` is already a part of the memory of the whole file, so
        nothing is copied."""
        with self._counting:
            self._filled[key] += area.size

    def require_filled(self) -> None:
        """Raises ValueError where some bytes of a blob were not filled."""
        for key, extent in self._extents.items():
            if self._filled[key] != extent.num_bytes:
                raise ValueError(f"{key}: {self._filled[key]} of {extent.num_bytes} bytes were filled")


class FreshFile:
    """Packed weights in memory that are written to their file later. Satisfies `background_check.MappedFile`.

    file: the file to write, without its final name yet. whole: all bytes of the file. warn: called with a sentence
    where the disk refuses the file. closing: closed by `close`; until then other processes see the file as in use.
    """

    unfinished = True

    def __init__(
        self, file: PartialFile, whole: U8Array, warn: Callable[[str], None], closing: contextlib.ExitStack
    ) -> None:
        self.path = file.path
        self._file, self._warn, self._closing = file, warn, closing
        self._whole: U8Array | None = whole

    def check_all(self, go_on: GoOn = always) -> bool:
        """Writes the file and gives it its name; bytes that were just packed need no check. A later call does nothing.
        `go_on` only makes pauses: where it returns False, the file is still written to its end, because packing again
        would take longer."""
        whole, self._whole = self._whole, None  # weights that are only on a device need no host memory afterwards
        if whole is not None:
            try:
                self._file.finish(whole, go_on)
            except OSError as reason:
                self._closing.close()  # frees the disk space again
                words = reason.strerror or str(reason)
                self._warn(f"Packed weights cannot be kept in {self.path.parent}: {words}. The next start packs again.")
        return True

    def close(self) -> None:
        """Writes the file if it is not written yet, and ends its use. Closing twice is harmless."""
        self.check_all()
        self._closing.close()
        mark_used(self.path)

    def discard(self) -> None:
        """Gives up the file, unless it has its final name already. The next start then packs again."""
        self._file.discard()


def _in_huge_pages(num_bytes: int) -> U8Array:
    """Returns (num_bytes,) uint8 zeros, aligned to a page; in huge pages where the system has them."""
    memory = here.private_memory(num_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return cast(U8Array, np.frombuffer(memory, np.uint8))
