"""The defaults of transformers for fields that a config.json does not have.

`python -m tools.model_defaults` writes defaults.json from the config classes of transformers, and
tests/models/fields/test_defaults.py compares the two. A default that transformers does not keep in its config class is
written in the model file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

TABLE = Path(__file__).with_name("defaults.json")


def defaults(model_type: str) -> Mapping[str, object]:
    """Returns the defaults of a model_type, for the fields that its model file reads. Raises LookupError for a
    model_type without a line in the table."""
    found = _table().get(model_type)
    if found is None:
        command = f"python -m tools.model_defaults {model_type} FIELD ..."
        raise LookupError(f"{TABLE.name} has no line for {model_type}. This command writes it: {command}")
    return found


@cache
def _table() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = msgspec.json.decode(TABLE.read_bytes())
    return found
