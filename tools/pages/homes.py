"""Makes the tables of `src/twostroke/models/common/homes.json`: which model file registers which architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping

from twostroke.models.common.registry import Architecture, architectures, is_causal_of_type

PACKAGE = "twostroke.models."


def homes_tables() -> str:
    """Returns the text of the file."""
    known = architectures()
    types = {word for entry in known.values() for word in (entry.model_type, *entry.other_types)}
    tables = {
        "homes": {name: entry.read.__module__.removeprefix(PACKAGE) for name, entry in sorted(known.items())},
        "causal_of_type": {word: name for word in sorted(types) for name in _causal_names(word, known)},
    }
    return json.dumps(tables, indent=1) + "\n"


def _causal_names(model_type: str, known: Mapping[str, Architecture]) -> list[str]:
    """Returns the one architecture of a model_type, or none. Raises SystemExit when two share the type, because the
    table would depend on their order."""
    names = sorted({entry.name for entry in known.values() if is_causal_of_type(entry, model_type)})
    if len(names) > 1:
        raise SystemExit(f"model_type {model_type} belongs to {', '.join(names)}, and it must belong to one of them.")
    return names
