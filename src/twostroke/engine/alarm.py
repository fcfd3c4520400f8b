"""An alarm ends an engine that has nothing to do. Any thread may ring it, and an engine that sleeps wakes up."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Alarm:
    """An alarm is rung once, for good. The next step then finds out what is wrong (`Stepper.require_sound`)."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.rung = False

    def ring(self) -> None:
        """Ring the alarm. Any thread may call it; a second call changes nothing."""
        with self._guard:
            self.rung = True
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the alarm is rung; at once if it was rung before."""
        with self._guard:
            self._listeners.append(listener)
            rung = self.rung
        if rung:
            listener()
