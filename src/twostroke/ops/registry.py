"""Finds every op in this folder and its sub-folders. An op is in a module that defines an `Op` with the module's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType, ModuleType

from twostroke.ops.program.op import Op

PASSES = "passes"
"""The folder of the modules that change programs. It holds no op, and a start needs few of its modules."""


@cache
def registry() -> Mapping[str, type[Op]]:
    """Returns all ops by name, in the order of their names. All their modules are imported."""
    found = {name: op for name in sorted(op_modules()) if (op := op_named(name)) is not None}
    return MappingProxyType(found)


def op_named(name: str) -> type[Op] | None:
    """Returns the op called `name`, or None where there is none. Only its own module is imported."""
    home = op_modules().get(name)
    if home is None:
        return None
    for item in vars(importlib.import_module(home)).values():
        if isinstance(item, type) and issubclass(item, Op) and getattr(item, "NAME", "") == name:
            return item
    return None


@cache
def op_modules() -> Mapping[str, str]:
    """Returns the full name of each module by its last part. Ops have the names of their modules; a few modules define
    none."""
    folder = importlib.import_module(__name__.rpartition(".")[0])
    return {name.rpartition(".")[2]: name for name in _modules(folder)}


def _modules(folder: ModuleType) -> Iterator[str]:
    """Yields the full names of the modules in a folder and its sub-folders, without `passes`."""
    for info in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        if not info.ispkg:
            yield info.name
        elif info.name.rpartition(".")[2] != PASSES:
            yield from _modules(importlib.import_module(info.name))
