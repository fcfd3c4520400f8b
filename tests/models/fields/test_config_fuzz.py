"""A config.json of any architecture with a wrong member gives one of our errors, or a model, in little memory."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.models.families.stored import by_architecture, config_of
from tests.tiers import fewer
from twostroke.models.common.registry import read_model
from twostroke.types.errors import ModelError
from twostroke.weights.tensors import wanted_tensors

TRIES = fewer(4, quick=2)
MOST_KB = 256 << 10
VALUES = (
    None, 0, -1, 1, 3, 7, 64, 1 << 20, 1 << 30, -(1 << 62), 1e300, 1e-300, 0.5, float("nan"), "", "x", "gelu", True,
    False, [], [1, 2], ["x"], [None], [0] * 8, {}, {"a": 1}, {"rope_type": "yarn"},
)  # fmt: skip


def changed(rng: np.random.Generator, config: dict[str, Any]) -> dict[str, Any]:
    """A config in which one member at any depth is missing or has another value."""
    found: dict[str, Any] = json.loads(json.dumps(config))
    place: Any = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[int(rng.integers(len(keys)))]
        if isinstance(place[key], dict | list) and place[key] and rng.integers(4):
            place = place[key]
            continue
        if isinstance(place, dict) and rng.integers(8) == 0:
            del place[key]
        else:
            place[key] = VALUES[int(rng.integers(len(VALUES)))]
        return found


def configs(name: str, family: str) -> Iterator[dict[str, Any]]:
    """Configs of an architecture, each with one error."""
    sound = {"architectures": [name], **json.loads(json.dumps(config_of(family), default=str))}
    sound["architectures"] = sound["architectures"] or [name]
    rng = np.random.default_rng(sum(family.encode()))
    for _ in range(TRIES):
        yield changed(rng, sound)


def read(config: dict[str, Any]) -> None:
    """Everything that config.json alone decides."""
    try:
        model = read_model(config)
        assert sum(1 for _ in wanted_tensors(model)) > 0
    except ModelError as error:
        assert error.what and len(str(error)) < 1200


def test_nothing_but_model_errors() -> None:
    families = by_architecture()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, own in families.items():
        for config in configs(name, own[0]):
            read(config)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KB


@pytest.mark.parametrize("family", ["deepseek-v3", "deepseek-v2-groups"])
def test_groups_that_do_not_divide_the_experts_are_refused(family: str) -> None:
    config = {**config_of(family), "n_routed_experts": 12, "n_group": 8, "topk_group": 2}
    config["topk_method"] = "group_limited_greedy" if family.startswith("deepseek-v2") else "noaux_tc"
    with pytest.raises(ModelError, match="n_group"):
        read_model(config)


@pytest.mark.parametrize("family", ["deepseek-v3", "deepseek-v2-groups"])
def test_more_experts_than_the_kept_groups_have_are_refused(family: str) -> None:
    config = {**config_of(family), "n_routed_experts": 12, "n_group": 6, "topk_group": 1}
    config["topk_method"] = "group_limited_greedy" if family.startswith("deepseek-v2") else "noaux_tc"
    with pytest.raises(ModelError, match="num_experts_per_tok"):
        read_model({**config, "num_experts_per_tok": 3})


def test_layers_that_share_k_and_v_have_equal_heads() -> None:
    config = config_of("gemma4")
    own = {**config["per_layer_config"], "3": {"head_dim": 16}}
    with pytest.raises(ModelError, match="per_layer_config"):
        read_model({**config, "architectures": ["Gemma4ForCausalLM"], "per_layer_config": own})
