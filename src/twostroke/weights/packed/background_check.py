"""After the start: every block of the mapped weights is compared with its checksum, while the engine already answers.
Weights that this start packed are given their checksums and the file its name.

What is found ends the engine: an answer from damaged weights may be wrong, and nothing of it shows.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from twostroke.types.errors import EngineStopped
from twostroke.weights.packed.header import StaleFile
from twostroke.weights.packed.polite import give_way

DELAY_S = 0.2
"""The first answer of a one-shot command should not share memory and cores with the reading."""

SILENT_S = 0.5
"""An end that waits longer for the disk prints what it waits for."""

WAITING = "Waiting until the packed weights are on the disk, for later starts. Ctrl-C ends without them."

NICENESS = 5
"""The niceness of the check. Next to a busy engine it still ends within the first second for a model of a gigabyte,
because it gets a quarter of a core."""

NICENESS_OF_WRITING = 19
"""The niceness of writing what this start packed. Only later starts need the file, so a busy engine loses little to it;
an idle one, or one that ends, leaves it whole cores."""


class MappedFile(Protocol):
    """A file whose weights are in use."""

    path: Path

    unfinished: bool
    """Whether `check_all` makes the file what the next start can read; a process should not end before it has."""

    def check_all(self, go_on: Callable[[float], bool]) -> bool:
        """Look at every block; False where `go_on` said no before the end. Raises StaleFile.

        go_on(wait_s): waits so long, or until nobody is disturbed any more. False where the engine ends.
        """

    def close(self) -> None:
        """Finish what is unfinished. Closing twice is harmless."""

    def discard(self) -> None:
        """Delete the file, so that the next start packs anew."""


class BackgroundCheck:
    """Compares one file with its checksums. file: None for weights in memory, which have nothing to compare. tell:
    called with a sentence where an end waits for the disk."""

    def __init__(self, file: MappedFile | None, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self._file, self._tell = file, tell
        self._no_delay, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="twostroke-check", daemon=True)
        if file is not None and file.unfinished:
            atexit.register(self._wait)  # of a process that ends without `close`
        self._given_up = False
        self._damage: str | None = None
        self.complete = file is None

    def start(self) -> None:
        """Begin, after DELAY_S."""
        if self._file is not None:
            self._thread.start()

    def finish(self) -> None:
        """Wait until every block was compared. Raises EngineStopped as `require_sound` does."""
        self._wait()
        self.require_sound()

    def trusted(self, seconds: float = 0.0) -> bool:
        """Is every block known to be right? Waits for the comparison no longer than this."""
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
        """End the thread, however far it has come; what is unfinished is finished. Closing twice is harmless."""
        self._stop.set()
        self._wait()
        atexit.unregister(self._wait)
        if self._file is not None:
            self._file.close()

    def _wait(self) -> None:
        """Until the thread has ended, which hurries now. Ctrl-C gives up a file that is unfinished, and nobody waits
        for it again."""
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
        """See MappedFile.check_all. It does not wait where somebody waits for the thread to end."""
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
