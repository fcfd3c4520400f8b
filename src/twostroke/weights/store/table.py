"""The table of short names, such as `llama3.2:1b`, and the repositories for which they stand."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

LATEST = "latest"


class KnownName(Struct, frozen=True):
    """name: the name as the table writes it. repo: the repository on the hub. quant: the quantization, "" for the usual
    choice. task: chat, embed or rerank."""

    name: str
    repo: str
    family: str
    quant: str = ""
    task: str = "chat"

    @property
    def reference(self) -> str:
        """The full name: owner/repo[:quant]."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


@cache
def rows() -> Mapping[str, KnownName]:
    """Returns the table of short names in popular.toml: short name -> KnownName, in the order of the file."""
    text = Path(__file__).with_name("popular.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)["models"]
    return MappingProxyType({name: KnownName(name=name, **fields) for name, fields in table.items()})


def row_of(name: str) -> KnownName | None:
    """Returns the row for a short name, without regard to case; a name without a tag selects the first of its rows.
    Returns None for other names."""
    if "/" in name or not name:
        return None
    family, _, tag = name.lower().partition(":")
    if tag and tag != LATEST:
        return rows().get(f"{family}:{tag}")
    plain = rows().get(family)
    return plain or next((row for row in rows().values() if row.name.partition(":")[0] == family), None)


def near_names(name: str, more: tuple[str, ...] = ()) -> list[str]:
    """Returns names of `more` and of the table that are spelt nearly like this one."""
    return difflib.get_close_matches(name.lower(), [*more, *rows()], 3, 0.7)
