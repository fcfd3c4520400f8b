"""What ends an engine while it has nothing to do: it is rung from any thread, and an engine that sleeps wakes up."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Alarm:
    """Rung once, for good. The next step asks what is wrong (`Stepper.require_sound`)."""

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
        """Call this when it is rung; now where it was rung already."""
        with self._guard:
            self._listeners.append(listener)
            rung = self.rung
        if rung:
            listener()
