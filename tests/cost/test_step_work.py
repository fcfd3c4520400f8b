"""The work of a step, counted from the traced program, equals the textbook formulas of the family."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.dense_by_hand import by_hand
from tests.models.families.stored import config_of
from twostroke.cost.shape import Segment
from twostroke.cost.step_work import NOTHING, WorkCounter, kv_positions, visible_positions
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.ops.quant.formats import weight_format
from twostroke.types.spec.formats import KVKind

NAMES = (
    "llama2-multi-head",
    "llama-tied",
    "llama-odd-sizes",
    "mistral-window",
    "qwen2-biases",
    "qwen2-window-upper-layers",
    "qwen3-head-norms",
    "qwen3-tied",
)
STEPS = {
    "one token": [Segment.decode(99)],
    "a whole prompt": [Segment.prefill(0, 37, True)],
    "a chunk in the middle": [Segment.prefill(16, 24, False)],
    "decodes and a chunk": [Segment.decode(5), Segment.decode(19), Segment.decode(40), Segment.prefill(8, 30, False)],
    "two prompts": [Segment.prefill(0, 3, True), Segment.prefill(0, 21, True)],
}


def config_with_head(name: str) -> dict[str, object]:
    config = config_of(name)
    config["head_dim"] = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return config


@pytest.mark.parametrize(("weights", "kind"), [("f32", KVKind.F32), ("int8", KVKind.BF16), ("int4", KVKind.INT4)])
@pytest.mark.parametrize("name", NAMES)
def test_parts_equal_the_formulas(name: str, weights: str, kind: KVKind) -> None:
    config = config_with_head(name)
    model = read_model(config)
    counter = WorkCounter(work_of(model, weights, kind))
    for step in STEPS.values():
        found, expected = counter.step(step), by_hand(config, model.windows, weight_format(weights), kind, step)
        assert found == expected
        assert found.total == expected.total


def test_an_empty_step_is_no_work() -> None:
    model = read_model(config_with_head("llama-tied"))
    assert WorkCounter(work_of(model, "int8", KVKind.BF16)).step([]) == NOTHING


@given(st.integers(0, 300), st.integers(1, 200), st.integers(0, 250))
def test_closed_forms_equal_the_sums(start: int, num_tokens: int, window: int) -> None:
    rows = range(start, start + num_tokens)
    seen = [min(position + 1, window) if window else position + 1 for position in rows]
    assert visible_positions(start, num_tokens, window) == sum(seen)
    first = max(0, start + 1 - window) if window else 0
    assert kv_positions(start, num_tokens, window) == start + num_tokens - first
