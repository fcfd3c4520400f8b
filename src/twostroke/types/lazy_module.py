"""Modules that are imported when something of them is used for the first time.

    if TYPE_CHECKING:
        from twostroke.weights.quantized import schemes
    else:
        schemes = LazyModule("twostroke.weights.quantized.schemes")

A start pays for each module that it imports. This is for what only some models or settings need. mypy and the laws of
imports see the usual import. The program sees an object that imports the module when its first attribute is read.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

_importing = threading.RLock()
"""A package and its module have a lock each. Two threads that import them in either order would wait for each other."""


class LazyModule:
    """Stands for a module of this name. Any thread may use it: one thread at a time imports such modules."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        with _importing:
            module = importlib.import_module(self._name)
        return getattr(module, attribute)
