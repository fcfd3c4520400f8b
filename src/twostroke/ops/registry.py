"""Every op, found in this folder: a module that defines an `Op` named like itself.

Knows: the folder.
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
    for info in sorted(pkgutil.iter_modules(folder.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{package}.{info.name}")
        for item in vars(module).values():
            if isinstance(item, type) and issubclass(item, Op) and getattr(item, "NAME", "") == info.name:
                found[info.name] = item
    return MappingProxyType(found)
