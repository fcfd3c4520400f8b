"""An alarm wakes an engine that sleeps because it has no work, when something breaks meanwhile. Any thread may ring it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Alarm:
    """Wakes the engine once something is broken for good, such as a lost rank. The engine's next step then finds out
    what is wrong (`Stepper.require_sound`)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.rung = False

    def ring(self) -> None:
        """Sets `rung` and calls all listeners. Any thread may call it; a second call changes nothing."""
        with self._guard:
            self.rung = True
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the alarm is rung, or at once if it was rung before."""
        with self._guard:
            self._listeners.append(listener)
            rung = self.rung
        if rung:
            listener()
