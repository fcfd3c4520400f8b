"""Runs a coroutine at once as far as it goes without waiting. Most writes to a socket never wait."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any


class Begun:
    """Runs an awaitable up to its first wait as soon as this object is made, and raises any error until then. over:
    True when the awaitable has ended without a wait. Otherwise this object must be awaited, once, which runs the
    rest."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._rest = work.__await__()
        try:
            self._waits_for = next(self._rest)
            self.over = False
        except StopIteration:
            self.over = True

    def __await__(self) -> Generator[Any, Any, None]:
        """Runs the awaitable from its first wait to its end, in the task that awaits this object."""
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
    """Raises an error at the place where the awaitable waits, and runs the rest of the awaitable. The error, such as a
    cancellation, came during the first wait."""
    try:
        waits_for = rest.throw(error)
    except StopIteration:
        return
    yield waits_for
    yield from rest
