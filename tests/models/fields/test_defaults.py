"""The defaults of model files are those of the config classes of transformers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from twostroke.models import common
from twostroke.models.common.fields.defaults import TABLE, defaults

MODELS = Path(common.__file__).parents[1]
WANTED = json.loads(TABLE.read_text())


@pytest.mark.parametrize("model_type", sorted(WANTED))
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    from tools.model_defaults import values_of

    found = json.loads(json.dumps(values_of(model_type, WANTED[model_type])))
    assert found == WANTED[model_type] == defaults(model_type)


def test_each_row_is_read_by_a_model_file() -> None:
    asked = {word for path in MODELS.rglob("*.py") for word in re.findall(r'defaults\("([^"]+)"\)', path.read_text())}
    assert asked == WANTED.keys()
