"""An event loop whose time goes on at once when nothing else is left to do: exact, however busy the machine is."""

from __future__ import annotations

import asyncio
import selectors


class VirtualLoop(asyncio.SelectorEventLoop):
    """For `asyncio.Runner(loop_factory=VirtualLoop)`. Only timers are waited for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now_s


class _Jump(selectors.SelectSelector):
    """Where nothing is ready, the time of the next timer is now."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is not None and timeout > 0:
            self._loop.now_s += timeout
        return found
