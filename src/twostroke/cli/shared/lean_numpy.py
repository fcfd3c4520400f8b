"""Imports NumPy without the parts that only type checkers and readers of documentation use, for a command that loads a
model.

These parts were the largest single cost of a start's imports: a tenth of their processor time.
"""

from __future__ import annotations

import sys
import types
from typing import Any

TYPES, PUBLIC_TYPES = "numpy._typing", "numpy.typing"
DOCUMENTATION = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")


class _Form:
    """Stands for a type while NumPy is imported, which writes it in annotations and reads none of them."""

    def __class_getitem__(cls, _item: object) -> type[_Form]:
        return cls


class _Arrays:
    """numpy.typing.NDArray: NDArray[kind] is an array of any shape."""

    def __class_getitem__(cls, kind: Any) -> Any:
        import numpy as np

        return types.GenericAlias(np.ndarray, (tuple[Any, ...], types.GenericAlias(np.dtype, (kind,))))


class _Forms(types.ModuleType):
    """Stands for NumPy's types while NumPy is imported."""

    def __getattr__(self, name: str) -> type[_Form]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Form


class _PublicTypes(types.ModuleType):
    """numpy.typing: NDArray at once, and the module itself with any other name."""

    NDArray = _Arrays

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(PUBLIC_TYPES, None)
        import numpy.typing as public

        return getattr(public, name)


def import_lean() -> None:
    """Imports NumPy, where no one has done so. The first module that asks for its types imports these."""
    if "numpy" in sys.modules:
        return
    stand_ins = {TYPES: _Forms(TYPES), **{name: types.ModuleType(name) for name in DOCUMENTATION}}
    sys.modules.update(stand_ins)
    try:
        import numpy as np
    finally:
        for name in stand_ins:
            del sys.modules[name]
    sys.modules[PUBLIC_TYPES] = np.typing = _PublicTypes(PUBLIC_TYPES)
