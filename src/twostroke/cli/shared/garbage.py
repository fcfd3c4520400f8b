"""When Python searches for garbage: not during a start, and later not among what lasts as long as the process.

A start makes a hundred thousand objects, of which one in a hundred is garbage. Searching them again and again took a
sixth of its processor time. A full search later, between two tokens of a stream, took up to 88 ms with the embedded
model; frozen objects are not searched.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def put_off() -> None:
    """Nothing is searched from now on, until `lasting_heap` or `resume`: for a command that loads a model."""
    gc.disable()


def resume() -> None:
    """Search again, but for what is there now: the model is loaded."""
    gc.freeze()
    gc.enable()


@contextmanager
def lasting_heap() -> Iterator[None]:
    """Keep what is there now out of garbage collection until the end. For the owner of the process, after loading."""
    resume()
    try:
        yield
    finally:
        gc.unfreeze()
