"""Fixtures that the laws share: syntax trees of all modules are kept and never searched for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_garbage() -> Iterator[None]:
    """Stops the garbage collector: to search millions of nodes repeatedly takes as long as to parse them."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()
