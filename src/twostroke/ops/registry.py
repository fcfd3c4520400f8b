"""Every op, found in this folder and its sub-folders: a module that defines an `Op` named like itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType, ModuleType

from twostroke.ops.program.op import Op

PASSES = "passes"
"""The folder of what changes programs; it holds no op, and a start needs few of its modules."""


@cache
def registry() -> Mapping[str, type[Op]]:
    """Ops by name, in the order of their names. All their modules are imported."""
    found = {name: op for name in sorted(op_modules()) if (op := op_named(name)) is not None}
    return MappingProxyType(found)


def op_named(name: str) -> type[Op] | None:
    """The op of a name, None where there is none. Its module is imported and no other."""
    home = op_modules().get(name)
    if home is None:
        return None
    for item in vars(importlib.import_module(home)).values():
        if isinstance(item, type) and issubclass(item, Op) and getattr(item, "NAME", "") == name:
            return item
    return None


@cache
def op_modules() -> Mapping[str, str]:
    """Name of a module -> its full name. Ops are named like their modules; a few modules define none."""
    folder = importlib.import_module(__name__.rpartition(".")[0])
    return {name.rpartition(".")[2]: name for name in _modules(folder)}


def _modules(folder: ModuleType) -> Iterator[str]:
    """The full names of a folder's modules and of those in its sub-folders, but `passes`."""
    for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        if not info.ispkg:
            yield info.name
        elif info.name.rpartition(".")[2] != PASSES:
            yield from _modules(importlib.import_module(info.name))
