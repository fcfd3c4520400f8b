"""Fields of the dense families: the meaning of missing fields in transformers, and the fields that are refused by name.

tests/models/test_parity.py tests that their logits are transformers'. Gemma's fields are in tests/models/test_gemma.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.models.families.stored import FAMILIES, config_of
from tests.models.fields.test_config_fields import ABSENT, agrees_with_transformers, is_refused_by_name, named
from twostroke.models.common.registry import read_model

SCALED = {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}

SAME: list[tuple[str, dict[str, Any]]] = [
    ("phi3", {"sliding_window": None, "eos_token_id": ABSENT, "rms_norm_eps": ABSENT}),
    (
        "phi3-longrope-short",
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 9.0}},
    ),
    ("olmo2", {"rms_norm_eps": ABSENT, "rope_parameters": SCALED}),
    ("olmo3", {"layer_types": ABSENT, "rope_parameters": ABSENT}),
    (
        "olmo3",
        {"rope_parameters": ABSENT, "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "layer_types": ABSENT},
    ),
    ("smollm3", {"no_rope_layers": ABSENT, "no_rope_layer_interval": 2, "layer_types": ABSENT}),
    ("smollm3", {"rope_parameters": ABSENT}),
    ("smollm3-window", {"use_sliding_window": False, "layer_types": ABSENT}),
    ("granite", {"rope_parameters": SCALED, "logits_scaling": ABSENT, "embedding_multiplier": ABSENT}),
    ("granite", {"residual_multiplier": ABSENT, "attention_multiplier": 0.1}),
    ("exaone4", {"layer_types": ABSENT, "sliding_window_pattern": 2}),
    ("cohere", {"rope_parameters": ABSENT, "layer_norm_eps": ABSENT, "logit_scale": ABSENT}),
    ("cohere2", {"layer_types": ABSENT, "rope_parameters": SCALED}),
    ("glm", {"rope_parameters": {"rope_type": "default", "rope_theta": 30.0}}),
    ("glm4", {"rms_norm_eps": ABSENT, "rope_parameters": ABSENT, "partial_rotary_factor": ABSENT}),
    ("seed-oss", {"rope_parameters": SCALED, "mlp_bias": ABSENT, "attention_out_bias": ABSENT}),
    ("ernie4-5", {"rope_parameters": ABSENT, "use_bias": ABSENT}),
    ("ministral3", {"rope_parameters": ABSENT, "rms_norm_eps": ABSENT}),
]


@pytest.mark.parametrize("case", SAME, ids=named)
def test_a_field_is_read_as_transformers_reads_it(case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    agrees_with_transformers(case, tmp_path)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "phi3",
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        "short_factor",
    ),
    ("phi3", {"partial_rotary_factor": 2.0}, "partial_rotary_factor"),
    ("olmo2", {"attention_bias": True}, "bias"),
    ("olmo3", {"rope_parameters": {"full_attention": {"rope_type": "mrope"}}}, "mrope"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers"),
    ("granite", {"residual_multiplier": "much"}, "residual_multiplier"),
    ("granite", {"logits_scaling": 0}, "logits_scaling"),
    ("exaone4", {"layer_types": ABSENT, "sliding_window_pattern": "LLLG"}, "sliding_window_pattern"),
    ("cohere2", {"layer_types": ["full_attention"] * 3}, "layer_types"),
    ("glm4", {"partial_rotary_factor": 0.3, "rope_parameters": ABSENT}, "head_dim"),
    ("seed-oss", {"attention_out_bias": True}, "o_proj.bias"),
    ("ernie4-5", {"num_key_value_heads": 3}, "num_key_value_heads"),
    ("ministral3", {"rope_parameters": {"rope_type": "default", "rope_theta": 9.0}}, "llama_4_scaling_beta"),
]


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_a_field_that_does_not_fit_is_refused_by_name(case: tuple[str, dict[str, Any], str], tmp_path: Path) -> None:
    is_refused_by_name(case, tmp_path)


def test_early_names_of_longrope_mean_longrope() -> None:
    config = config_of("phi3-longrope-long")
    scaling = {**config["rope_parameters"], "type": "su", "rope_type": None}
    old = read_model({**config, "rope_parameters": None, "rope_scaling": scaling})
    assert old.program.ropes == read_model(config).program.ropes


@pytest.mark.parametrize("family", [name for name in FAMILIES if "olmo3" in name or "exaone4" in name])
def test_windows_are_those_of_the_config(family: str) -> None:
    config = config_of(family)
    assert config["model_type"] in ("olmo3", "exaone4")
    windows = {"sliding_attention": config["sliding_window"], "full_attention": 0}
    assert read_model(config).windows == tuple(windows[each] for each in config["layer_types"])
