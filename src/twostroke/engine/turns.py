"""A lock that threads get in the order in which they asked for it. An action can be left for the next thread that takes
or releases the lock, so that the caller need not wait.

threading.Lock may be taken again at once by the thread that released it: a thread that steps an engine in a loop would
keep every other thread out. With this lock the thread that has waited longest comes next.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from msgspec import Struct, field


def _closed_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


class _Place(Struct, eq=False):
    """The entry of one thread in the queue of a FairLock. granted: whether the thread has got the lock; it is only
    written while the lock's `_guard` is held."""

    gate: threading.Lock = field(default_factory=_closed_gate)
    granted: bool = False


class FairLock:
    """A lock, used as `with turns:`. Not reentrant.

    `soon` is for finalizers: the garbage collector may run them in a thread that holds the lock, where waiting for it
    would never end.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()  # held for a few instructions, never while anything waits
        self._held = False
        self._queue: deque[_Place] = deque()
        self._later: deque[Callable[[], object]] = deque()

    def soon(self, action: Callable[[], object]) -> None:
        """Run `action` under the lock without waiting: now if the lock is free, else when it is released or taken next.
        """
        self._later.append(action)
        if not self._guard.acquire(blocking=False):
            return
        mine = not self._held
        self._held = True
        self._guard.release()
        if mine:
            self._end()

    def __enter__(self) -> None:
        place = _Place()
        try:
            with self._guard:
                if self._held:
                    self._queue.append(place)
                else:
                    self._held = place.granted = True
            if not place.granted:
                place.gate.acquire()
            self._run_later()
        except BaseException:  # Ctrl-C while this thread waits
            with self._guard:
                granted = place.granted
                if place in self._queue:
                    self._queue.remove(place)
            if granted:
                self._end()
            raise

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        try:
            self._run_later()
        finally:
            with self._guard:
                if self._queue:
                    following = self._queue.popleft()
                    following.granted = True
                    following.gate.release()
                else:
                    self._held = False

    def _run_later(self) -> None:
        while self._later:
            self._later.popleft()()
