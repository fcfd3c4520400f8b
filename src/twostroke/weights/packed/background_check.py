"""Compares every block of the mapped weights with its checksum after the start, while the engine already answers. For
weights that this start packed, it writes the file with its checksums and gives it its name.

Damage that is found ends the engine: an answer from damaged weights may be wrong, and nothing shows that it is.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from twostroke.system.starting import begun
from twostroke.types.errors import EngineStopped
from twostroke.weights.packed.header import StaleFile
from twostroke.weights.packed.polite import give_way

DELAY_S = 0.2
"""The seconds before the check begins. The first answer of a one-shot command should not share memory and cores with
the reading."""

SILENT_S = 0.5
"""The seconds that an ending process waits for the disk in silence. After that it prints what it waits for."""

WAITING = "Waiting until the packed weights are on the disk, for later starts. Ctrl-C ends without them."

NICENESS = 5
"""The niceness of the check. Next to a busy engine it still ends within the first second for a model of a gigabyte,
because it gets a quarter of a core."""

NICENESS_OF_WRITING = 19
"""The niceness of writing the weights that this start packed. Only later starts need the file, so a busy engine loses
little time to the writing. An idle engine, or one that ends, leaves whole cores to it."""


class MappedFile(Protocol):
    """A file of packed weights that an engine uses."""

    path: Path

    unfinished: bool
    """Whether `check_all` still has to make the file readable for the next start; a process should not end before that
    is done."""

    def check_all(self, go_on: Callable[[float], bool]) -> bool:
        """Checks every block; returns False where `go_on` returned False before the end. Raises StaleFile.

        go_on(wait_s): waits `wait_s` seconds, or until the work disturbs nobody any more. Returns False where the
        engine ends.
        """

    def close(self) -> None:
        """Ends the use of the file. A file that is not on the disk yet is written first. Closing twice is harmless."""

    def discard(self) -> None:
        """Deletes the file, so that the next start packs again."""


class BackgroundCheck:
    """Compares one file with its checksums. file: None for weights in memory, which have nothing to compare. tell:
    called with a sentence where an ending process waits for the disk."""

    def __init__(self, file: MappedFile | None, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self._file, self._tell = file, tell
        self._no_delay, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="twostroke-check", daemon=True)
        if file is not None and file.unfinished:
            atexit.register(self._wait)  # for a process that ends without `close`
        self._given_up = False
        self._damage: str | None = None
        self.complete = file is None

    def start(self) -> None:
        """Begins the check, after DELAY_S. Where the system begins no more threads, there is no check, and `complete`
        stays False. If this process packed the weights, the next process must then pack them again, unless `close`
        writes their file."""
        if self._file is not None:
            begun(self._thread)

    def finish(self) -> None:
        """Waits until every block was compared. Raises EngineStopped as `require_sound` does."""
        self._wait()
        self.require_sound()

    def trusted(self, seconds: float = 0.0) -> bool:
        """Returns whether every block is known to be right. Waits at most `seconds` for the comparison."""
        if not self.complete and seconds > 0 and self._thread.is_alive():
            self._no_delay.set()
            self._thread.join(seconds)
        return self.complete

    def require_sound(self) -> None:
        """Raises EngineStopped where damage was found; costs nothing."""
        if self._damage is not None and self._file is not None:
            raise EngineStopped(
                "The packed weights of this model are damaged: answers since the start may be wrong.",
                why=f"In {self._file.path}, {self._damage}.",
                fix="Start again: the file was thrown away, and the weights are packed anew. Check the disk.",
            )

    def close(self) -> None:
        """Ends the check, however far it has come, and closes the file. A file that is not on the disk yet is written
        first. Closing twice is harmless."""
        self._stop.set()
        self._wait()
        atexit.unregister(self._wait)
        if self._file is not None:
            self._file.close()

    def _wait(self) -> None:
        """Waits until the thread has ended; the thread pauses no more. Ctrl-C gives up a file that is still being
        written, and later calls do not wait for this file."""
        self._no_delay.set()
        if not self._thread.is_alive() or self._given_up:
            return
        unfinished = self._file if self._file is not None and self._file.unfinished else None
        try:
            if unfinished is not None:
                self._thread.join(SILENT_S)
                if self._thread.is_alive():
                    self._tell(WAITING)
            self._thread.join()
        except KeyboardInterrupt:
            if unfinished is not None:
                self._given_up = True
                unfinished.discard()
            raise

    def _go_on(self, wait_s: float) -> bool:
        """Waits `wait_s` seconds, or less once a caller waits for the thread to end. Returns False once the engine
        ends. `MappedFile.check_all` calls it between parts of its work."""
        self._no_delay.wait(wait_s)
        return not self._stop.is_set()

    def _run(self) -> None:
        if self._file is None:
            return
        self._no_delay.wait(DELAY_S)
        give_way(NICENESS_OF_WRITING if self._file.unfinished else NICENESS)
        try:
            self.complete = self._file.check_all(self._go_on)
        except StaleFile as reason:
            self._file.discard()
            self._damage = str(reason)
