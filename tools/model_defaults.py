"""Writes the defaults that model files take from the config classes of transformers.

    python -m tools.model_defaults                         reads all values again
    python -m tools.model_defaults MODEL_TYPE FIELD ...    adds these fields of a model_type, and reads all values again

src/twostroke/models/common/fields/defaults.json has one line for each model_type. tests/models/fields/test_defaults.py
compares it with transformers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from transformers import CONFIG_MAPPING

from twostroke.models.common.fields.defaults import TABLE


def values_of(model_type: str, fields: Iterable[str]) -> dict[str, Any]:
    """Returns the values that these fields have in a config without any field. Raises AttributeError for a field that
    the config class does not have."""
    config = CONFIG_MAPPING[model_type]()
    own = vars(config)  # getattr refuses fields that differ by layer
    return {name: own[name] if name in own else getattr(config, name) for name in fields}


def main(words: list[str]) -> None:
    """Writes the file."""
    known = json.loads(TABLE.read_text())
    if words:
        fields = known.setdefault(words[0], {})
        fields.update(dict.fromkeys(name for name in words[1:] if name not in fields))
    rows = (f"{json.dumps(name)}: {json.dumps(values_of(name, known[name]))}" for name in sorted(known))
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
