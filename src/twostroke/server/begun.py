"""Runs a coroutine at once as far as it goes without waiting. Most writes to a socket never wait."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any


class Begun:
    """Runs the work up to its first wait, and raises any error until then. When it is not `over`, it must be awaited,
    once."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._rest = work.__await__()
        try:
            self._waits_for = next(self._rest)
            self.over = False
        except StopIteration:
            self.over = True

    def __await__(self) -> Generator[Any, Any, None]:
        """Run the rest of the work, in the task that awaits it."""
        if self.over:
            return
        self.over = True
        try:
            yield self._waits_for
        except BaseException as error:
            yield from _thrown(self._rest, error)
            return
        yield from self._rest


def _thrown(rest: Generator[Any, Any, Any], error: BaseException) -> Generator[Any, Any, None]:
    """Pass on an error that came while the work waited, and run the rest of the work."""
    try:
        waits_for = rest.throw(error)
    except StopIteration:
        return
    yield waits_for
    yield from rest
