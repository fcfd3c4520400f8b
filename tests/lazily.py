"""Judges that are imported where a test first uses them, for files whose every test works with their tensors.

Importing such a file takes no time then, which each process of each run would spend. What stands outside functions
must not use them: a test of formats names its types by words.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class Lazily(ModuleType):
    """A module that is imported when an attribute of it is asked for. pytest asks each name of a file for its marks,
    which begin with an underscore: these import nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


torch: Any = Lazily("torch")
transformers: Any = Lazily("transformers")
torch_files: Any = Lazily("safetensors.torch")
"""Reads and writes files of safetensors as tensors of torch."""
