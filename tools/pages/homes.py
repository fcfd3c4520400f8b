"""Makes the table of `src/twostroke/models/common/homes.py`: which model file registers which architecture."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from twostroke.models.common.registry import Architecture, architectures, is_causal_of_type

PACKAGE = "twostroke.models."
OPENING = '''"""Which file in `models/` registers an architecture, so that a start imports that one file and no other.

Written by tools/generate_docs.py from the model files; do not edit.
"""

from __future__ import annotations
'''
ENDING = '''
HOMES: dict[str, str] = {name: module for module, names in _NAMES.items() for name in names.split()}
"""Name of an architecture -> the module, below `twostroke.models`, that registers it."""
CAUSAL_OF_TYPE: dict[str, str] = {word: name for name, types in _TYPES.items() for word in types.split()}
"""model_type -> the architecture of models that continue text to which it belongs."""
'''
WIDTH = 100
"""The most characters of a line of names."""
LONGEST = 120
"""The most characters of a line of the module."""


def homes_module() -> str:
    """Returns the text of the module."""
    known = architectures()
    names, types = defaultdict(list), defaultdict(list)
    for name, entry in known.items():
        names[entry.read.__module__.removeprefix(PACKAGE)].append(name)
    for word in sorted({word for entry in known.values() for word in (entry.model_type, *entry.other_types)}):
        for name in _causal_names(word, known):
            types[name].append(word)
    return _formatted(
        OPENING
        + _table("_NAMES", names, "Module below `twostroke.models` -> what config.json calls its models.")
        + _table("_TYPES", types, "Name of an architecture that continues text -> its values of model_type.")
        + ENDING
    )


def _formatted(text: str) -> str:
    """Returns the text in the format that the linter wants; it joins strings that fit into one line."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "homes.py", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _causal_names(model_type: str, known: Mapping[str, Architecture]) -> Iterator[str]:
    """Yields the one architecture of a model_type, or none. Raises SystemExit when two share the type, because the
    table would depend on their order."""
    names = sorted({entry.name for entry in known.values() if is_causal_of_type(entry, model_type)})
    if len(names) > 1:
        raise SystemExit(f"model_type {model_type} belongs to {', '.join(names)}, and it must belong to one of them.")
    yield from names


def _table(name: str, rows: Mapping[str, Sequence[str]], words: str) -> str:
    lines = "".join(_row(key, rows[key]) for key in sorted(rows))
    return f'\n{name}: dict[str, str] = {{\n{lines}}}\n"""{words}"""\n'


def _row(key: str, words: Sequence[str]) -> str:
    text = " ".join(sorted(words))
    line = f'    "{key}": "{text}",'
    if len(line) <= LONGEST:
        return f"{line}\n"
    width = min(WIDTH, len(text) - 1)  # two pieces or more: one piece would be put back after its key
    pieces = wrap(text, width, break_long_words=False, break_on_hyphens=False)
    lines = "".join(f'        "{piece} "\n' for piece in pieces)
    return f'    "{key}": (\n{lines}    ),\n'
