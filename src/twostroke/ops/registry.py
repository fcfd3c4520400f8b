"""Every op, found in this folder and its sub-folders: a module that defines an `Op` named like itself.

Knows: the folders.
Must not know: any op by name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from twostroke.program.op import Op


@cache
def registry() -> Mapping[str, type[Op]]:
    """Ops by name, in the order of their names."""
    package = __name__.rpartition(".")[0]
    folder = importlib.import_module(package)
    found: dict[str, type[Op]] = {}
    for info in pkgutil.walk_packages(folder.__path__, f"{package}."):
        name = info.name.rpartition(".")[2]
        for item in vars(importlib.import_module(info.name)).values():
            if isinstance(item, type) and issubclass(item, Op) and getattr(item, "NAME", "") == name:
                found[name] = item
    return MappingProxyType(dict(sorted(found.items())))
