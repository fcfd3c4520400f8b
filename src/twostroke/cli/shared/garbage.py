"""Decides when Python searches for garbage: not during a start, and later not among objects that last as long as the
process.

A start makes a hundred thousand objects, of which one in a hundred is garbage. Searching them again and again took a
sixth of its processor time. A full search later, between two tokens of a stream, took up to 88 ms with the embedded
model; frozen objects are not searched.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def put_off() -> None:
    """Stops the search for garbage until `lasting_heap` or `resume`. It is for a command that loads a model."""
    gc.disable()


def resume() -> None:
    """Starts Python's garbage collector again. It ignores all objects that exist now. This is called when the model is
    loaded."""
    gc.freeze()
    gc.enable()


@contextmanager
def lasting_heap() -> Iterator[None]:
    """Keeps the present objects out of garbage collection until the end. It is for the owner of the process, after
    loading."""
    resume()
    try:
        yield
    finally:
        gc.unfreeze()
