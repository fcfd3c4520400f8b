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
    """Whether `check_all` still has to write weights that this start packed to their file. A process should not end
    before that is done: the next start could not use the file."""

    def check_all(self, go_on: Callable[[float], bool]) -> bool:
        """Checks every block; returns False where `go_on` returned False before the end. Raises StaleFile.

        go_on(wait_s): called between parts of the work, so that a busy engine is hardly slowed down. It waits `wait_s`
        seconds, or less once a caller waits for the work to end. Returns False once the engine ends.
        """

    def close(self) -> None:
        """Ends the use of the file. Weights that this start packed and that are not written to their file yet are
        written first. Closing twice is harmless."""

    def discard(self) -> None:
        """Deletes the file, so that the next start packs again."""


class BackgroundCheck:
    """Compares one file of packed weights with its checksums in a thread. file: None for weights in memory, which have
    no file. tell: called with a sentence for the user if the process must wait at its end until the file is written."""

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
        """Begins the check in a thread, after DELAY_S. If the system cannot begin a thread, nothing is checked, and
        `complete` stays False. Weights that this process packed are then written to their file only by `close`."""
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
        """Ends the check of the weights, however far it has come, and closes their file. Weights that this start packed
        and that are not written yet are written first. Closing twice is harmless."""
        self._stop.set()
        self._wait()
        atexit.unregister(self._wait)
        if self._file is not None:
            self._file.close()

    def _wait(self) -> None:
        """Waits until the thread has ended, without its pauses between parts of the work. Ctrl-C meanwhile gives up a
        file that the thread is still writing; later calls then return at once."""
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
