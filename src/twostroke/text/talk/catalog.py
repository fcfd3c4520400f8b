"""All formats that were written by hand, by name. A file below `formats` with a FORMAT and EXAMPLES is one of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from twostroke.text.talk import formats
from twostroke.text.talk.format import Example, Format, ThoughtMarks
from twostroke.text.talk.formats import common, thoughts

SHARED = (
    *("mistral", "mistral_list", "functiongemma", "granite3", "hunyuan", "apriel", "minimax_m1"),
    *("qwen3_coder", "functionary31", "hermes", "llama3", "xlam"),
)
"""Formats whose marks (such as `<tool_call>`) other formats also have. They are tried after all others, in this order.
"""


def format_files() -> Iterator[ModuleType]:
    """Yields the module of each family's format: the modules in the packages below `formats`. Modules directly in
    `formats` are left out."""
    for folder in pkgutil.iter_modules(formats.__path__, f"{formats.__name__}."):
        if folder.ispkg:
            package = importlib.import_module(folder.name)
            for file in pkgutil.iter_modules(package.__path__, f"{folder.name}."):
                yield importlib.import_module(file.name)


def _turn(file: ModuleType) -> tuple[int, str]:
    name = file.FORMAT.name
    return (SHARED.index(name) + 1 if name in SHARED else 0, name)


_FILES = sorted(format_files(), key=_turn)
FORMATS: dict[str, Format] = {file.FORMAT.name: file.FORMAT for file in _FILES}
"""The formats in the order in which they are tried: formats with marks of their own come first, by name."""
EXAMPLES: dict[str, tuple[Example, ...]] = {file.FORMAT.name: file.EXAMPLES for file in _FILES}

COMMON = common.FORMAT
THOUGHTS: tuple[ThoughtMarks, ...] = (thoughts.THINK, thoughts.BRACKETS)


@cache
def known_marks() -> frozenset[str]:
    """Returns the literal texts, such as `<tool_call>`, that mark the parts of a turn in any of the formats."""
    return frozenset(text for form in FORMATS.values() for text in form.texts)
