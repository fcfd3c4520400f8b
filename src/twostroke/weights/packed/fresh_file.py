"""A file of packed weights whose bytes are all there, while it has no name yet: an engine reads them at once, and the
file is made durable behind its first answers.

The bytes lie once in memory, in the pages of the file. A process that ends before the file has its name leaves a
partial file, which the next start removes (`remove_abandoned`).

Knows: a file that is being written.
Must not know: threads, how weights are used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from twostroke.weights.packed.file import FileTarget
from twostroke.weights.packed.header import StaleFile
from twostroke.weights.packed.in_use import mark_used


class FreshFile:
    """Owns a file of which every blob is written. Satisfies `background_check.MappedFile`.

    Raises OSError where the file cannot be mapped.
    """

    unfinished = True

    def __init__(self, target: FileTarget) -> None:
        self.path = target.path
        self.whole = target.map()
        self.closing = contextlib.ExitStack()
        """Ends the target, and removes what has no name by then."""
        self._target = target
        self._done = False

    def check_all(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Give the file its checksums and its name, once. `go_on` is not asked: packing again would cost more.

        Raises StaleFile where the disk refuses: then what is mapped may be lost as well.
        """
        if self._done:
            return True
        self._done = True
        with self.closing:
            try:
                self._target.finish()
            except OSError as reason:
                raise StaleFile(f"what was packed cannot be written to the disk: {reason.strerror or reason}") from None
        return True

    def close(self) -> None:
        """The same for an engine that ends: what the disk refuses is packed again by the next start."""
        with contextlib.suppress(StaleFile):
            self.check_all()
        mark_used(self.path)

    def discard(self) -> None:
        """The file gets no name, unless it has it already: the next start packs anew."""
        self._target.discard()
