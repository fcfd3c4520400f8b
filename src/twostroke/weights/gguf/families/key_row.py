"""One key of a GGUF file and the field of config.json that has the same value. Reader and writer use the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from twostroke.weights.gguf.keys import Keys


class KeyRow(Struct, frozen=True):
    """A key of a GGUF file and the field of config.json with the same value. kind: float, int for whole numbers, or
    bool. absent: the value for files that lack the key; None where the key is required. silent: the value of the key
    for a config.json that lacks the field; None where the key is then not written."""

    key: str
    field: str
    kind: type[int] | type[float] | type[bool] = int
    absent: float | None = None
    silent: float | None = None

    def read(self, keys: Keys) -> Any:
        """Returns the field's value. Raises CorruptModel where the key is required and the file lacks it."""
        if self.kind is bool:
            return keys.truth(self.key, bool(self.absent))
        return keys.number(self.key, self.absent)

    def written(self, config: Mapping[str, Any]) -> int | float | None:
        """Returns the value to write for the key, from the field or else from `silent`. Returns None where both are
        missing, and the key is then left out."""
        value = config.get(self.field)
        value = self.silent if value is None else value
        return None if value is None else self.kind(value)
