"""Modules that are imported when one of their attributes is used for the first time.

    if TYPE_CHECKING:
        from twostroke.weights.quantized import schemes
    else:
        schemes = LazyModule("twostroke.weights.quantized.schemes")

Each imported module makes the program's start slower. A LazyModule is for modules that only some models or settings
need. mypy and the tests of import rules see the usual import. The program sees an object that imports the module when
its first attribute is read.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

_importing = threading.RLock()
"""Python locks a package and each of its modules separately during an import. Without this lock, two threads would wait
for each other if one held the package's lock and the other the module's."""


class LazyModule:
    """Stands for the module with this name. Any thread may use it: only one thread at a time imports such modules."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        with _importing:
            module = importlib.import_module(self._name)
        return getattr(module, attribute)
