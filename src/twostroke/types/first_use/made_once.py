"""A property that is made at its first use and kept. One thread makes it, even if several threads ask at the same time.

    class Tokenizer:
        @made_once
        def _bound(self) -> TokenBound: ...

functools.cached_property has no lock from Python 3.12 on: threads that ask at the same time would each do the work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
_LOCK = "_made_once"


class made_once(Generic[T]):
    """A property whose value the decorated function makes. If the function raises, the error goes to the caller, and
    the next use tries again.

    An object has one lock for all such properties; a property may use another property while it is made.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> made_once[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> made_once[T] | T:
        """Returns the value. Python calls this method only until the object's own dictionary has the value."""
        if instance is None:
            return self
        values = instance.__dict__
        with values.setdefault(_LOCK, threading.RLock()):
            if self._name not in values:
                values[self._name] = self._make(instance)
            found: T = values[self._name]
            return found
