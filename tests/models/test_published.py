"""A plan of each published config names the parameters that the model's page names."""

from __future__ import annotations

import pytest

from tests.models.published.dense import PUBLISHED
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.plan import make_plan, plan_json
from twostroke.lab.planner.target import named_target
from twostroke.models.common.registry import read_model
from twostroke.types.spec.formats import KVKind

KV_BYTES = {
    "google/gemma-2b": 18 * 2 * 1 * 256 * 2,
    "google/gemma-3-27b-it": 62 * 2 * 16 * 128 * 2,
}
"""The bytes of one position in all layers, with K and V in bfloat16."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_plan_names_the_published_parameters(name: str) -> None:
    config, said = PUBLISHED[name]
    spec = read_model(config)
    assert spec.parameters() / 1e9 == pytest.approx(said, rel=0.005)
    plan = make_plan(name, spec, make_ask(spec, weights="int4"), named_target("h100-sxm"))
    assert plan_json(plan)["memory"]["active_parameters"] == spec.parameters()


@pytest.mark.parametrize("name", KV_BYTES)
def test_bytes_of_k_and_v_of_one_position(name: str) -> None:
    assert read_model(PUBLISHED[name][0]).kv_bytes_per_token(KVKind.BF16) == KV_BYTES[name]
