"""An event loop whose time advances at once when nothing else is left to do. So it is exact, however busy the machine
is."""

from __future__ import annotations

import asyncio
import selectors


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for `asyncio.Runner(loop_factory=VirtualLoop)`, which waits only for timers."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now_s


class _Jump(selectors.SelectSelector):
    """Where nothing is ready, the time becomes that of the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is not None and timeout > 0:
            self._loop.now_s += timeout
        return found
