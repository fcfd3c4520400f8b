"""Language models inside models that also see images: older files, rotations by time and place, what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.models.families.whole import FAMILIES
from twostroke.models.common.registry import read_model
from twostroke.types.errors import ModelError


def program_of(config: dict[str, Any]) -> str:
    return re.sub(" at 0x[0-9a-f]+", "", str(read_model(config).program))


def test_older_files_of_qwen2_vl_hold_the_fields_of_the_language_model_outside() -> None:
    nested = FAMILIES["qwen2-vl"]().to_dict()
    text = {name: value for name, value in nested["text_config"].items() if name != "rope_parameters"}
    turns = {"type": "mrope", "mrope_section": [2, 3, 3]}
    flat = {**text, "model_type": "qwen2_vl", "architectures": nested["architectures"], "rope_scaling": turns}
    assert program_of({**flat, "rope_theta": 1e4, "vision_config": {"depth": 1}}) == program_of(nested)
    assert program_of({**flat, "rope_theta": 2e4}) != program_of(nested)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"model_type": "nothing-known"}, "nothing-known"), ({"hidden_act": "no-function"}, "hidden_act")],
)
def test_a_language_model_that_is_not_there_is_named(changes: dict[str, Any], named: str) -> None:
    config = FAMILIES["llava"]().to_dict()
    with pytest.raises(ModelError, match=named):
        read_model({**config, "text_config": {**config["text_config"], **changes}})


def test_the_towers_tensors_are_left_out_by_name() -> None:
    """All else that a file holds is wrong in it."""
    ignored = read_model(FAMILIES["qwen2-vl"]().to_dict()).ignored
    assert "visual." in ignored and "model.visual." in ignored and not any(name.startswith("lm") for name in ignored)
