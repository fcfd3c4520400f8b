"""Every op, found in this folder and its sub-folders: a module that defines an `Op` named like itself.

Knows: the folders; that `passes` holds no op, but what changes programs.
Must not know: any op by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType, ModuleType

from twostroke.program.op import Op

PASSES = "passes"
"""The folder of what changes programs; it holds no op, and a start needs few of its modules."""


@cache
def registry() -> Mapping[str, type[Op]]:
    """Ops by name, in the order of their names."""
    package = __name__.rpartition(".")[0]
    folder = importlib.import_module(package)
    found: dict[str, type[Op]] = {}
    for name in _modules(folder):
        short = name.rpartition(".")[2]
        for item in vars(importlib.import_module(name)).values():
            if isinstance(item, type) and issubclass(item, Op) and getattr(item, "NAME", "") == short:
                found[short] = item
    return MappingProxyType(dict(sorted(found.items())))


def _modules(folder: ModuleType) -> Iterator[str]:
    """The full names of a folder's modules and of those in its sub-folders, but `passes`."""
    for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        if not info.ispkg:
            yield info.name
        elif info.name.rpartition(".")[2] != PASSES:
            yield from _modules(importlib.import_module(info.name))
