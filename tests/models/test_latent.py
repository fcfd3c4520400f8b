"""Families with latent attention: published sizes, the parts of their programs, and the fields that are refused by
name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.families.stored import config_of
from tests.models.published.latent import LATENT_BYTES, PUBLISHED
from tests.tiers import fewer, thinned
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.plan import make_plan, plan_json
from twostroke.lab.planner.target import named_target
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.latent_attention import LatentAttention
from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import LatentKV
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.rows.expressions import is_scaled
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.formats import KVKind, WeightKind

V3 = PUBLISHED["deepseek-ai/DeepSeek-V3"][0]
V32 = PUBLISHED["deepseek-ai/DeepSeek-V3.2"][0]
GLM_5 = PUBLISHED["zai-org/GLM-5"][0]
LITE = PUBLISHED["deepseek-ai/DeepSeek-V2-Lite"][0]


@pytest.mark.parametrize("name", thinned(list(PUBLISHED), "latent plans", fewer(len(PUBLISHED), quick=1)))
def test_a_plan_names_the_published_parameters_and_what_a_position_takes(name: str) -> None:
    """Active parameters are counted without the embedding, of which a token reads one row."""
    config, said, used, kv_bytes = PUBLISHED[name]
    model = read_model(config)
    assert model.parameters() / 1e9 == pytest.approx(said, rel=0.005)
    if used is not None:
        table = next(weight.elements for weight in model.program.weights if weight.role == "embedding")
        assert (model.program.active_parameters - table) / 1e9 == pytest.approx(used, rel=0.025)
    assert model.kv_bytes_per_token(KVKind.BF16) == kv_bytes
    plan = plan_json(
        make_plan(name, model, make_ask(model, weights="int8", kv_format="bf16"), named_target("h100-sxm"))
    )
    assert plan["memory"]["active_parameters"] == model.program.active_parameters


@pytest.mark.parametrize(("kind", "expected"), zip(KVKind, (2304, 1152, 580, 292), strict=True))
def test_bytes_of_a_position_in_one_layer(kind: KVKind, expected: int) -> None:
    """Integers have one byte or half of one for each number, and two scales."""
    model = read_model({**V3, "num_hidden_layers": 4})
    assert model.kv_bytes_per_token(kind) == 4 * expected
    (group,) = cache_groups(model.program).pages
    assert group.window == 0 and len(group.caches) == 4
    assert LATENT_BYTES == 1152


def attention_of(model: Model) -> LatentAttention:
    return next(call for call in model.program.calls if isinstance(call, LatentAttention))


def test_yarn_is_in_the_scale_of_the_scores() -> None:
    """DeepSeek-V2-Lite multiplies scores by (0.1 * 0.707 * ln 40 + 1) squared, and rotations by 1."""
    call = attention_of(read_model(LITE))
    assert call.scale == pytest.approx(192**-0.5 * 1.2608**2, rel=1e-4)
    assert all(rope.spec.attention_factor == 1.0 for rope in read_model(LITE).program.ropes)
    assert attention_of(read_model({**LITE, "rope_scaling": None})).scale == 192**-0.5


def test_matrices_of_single_heads_are_never_rounded_to_four_bits() -> None:
    model, choose = read_model(LITE), format_choice("int4")
    banks = [weight for weight in model.program.weights if weight.role in ("keys_up", "values_up")]
    assert len(banks) == 2 * 27 and {weight.experts for weight in banks} == {16}
    assert {choose(weight).kind for weight in banks} == {WeightKind.INT8}
    assert all(isinstance(cache.kind, LatentKV) for cache in model.program.caches)


def test_layers_behind_the_last_are_left_out_by_name() -> None:
    assert read_model(V3).ignored == ("model.layers.61.",)
    assert read_model({**V3, "num_nextn_predict_layers": 2}).ignored == ("model.layers.61.", "model.layers.62.")
    assert read_model(LITE).ignored == ()


WRONG: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
    (V3, {"scoring_func": "softmax"}, UnsupportedModel, "scoring_func"),
    (V3, {"topk_method": "greedy"}, UnsupportedModel, "topk_method"),
    (V3, {"moe_layer_freq": 2}, CorruptModel, "moe_layer_freq"),
    (V3, {"topk_group": 9}, CorruptModel, "topk_group"),
    (V3, {"num_key_value_heads": 8}, CorruptModel, "num_key_value_heads"),
    (V3, {"qk_rope_head_dim": 63}, CorruptModel, "odd"),
    (V3, {"kv_lora_rank": 0}, CorruptModel, "kv_lora_rank"),
    (V3, {"hidden_act": "gelu"}, UnsupportedModel, "hidden_act"),
    (V32, {"layer_types": ["full_attention"] * 61}, CorruptModel, "layer_types"),
    (V32, {"mlp_bias": True}, UnsupportedModel, "mlp_bias"),
    (V32, {"index_head_dim": 32}, CorruptModel, "index_head_dim"),
    (V32, {"index_topk": 0}, CorruptModel, "index_topk"),
    (GLM_5, {"indexer_types": ["shared"] * 78}, CorruptModel, "indexer_types"),
    (GLM_5, {"index_topk_pattern": "FX" * 39}, CorruptModel, "index_topk_pattern"),
    (LITE, {"topk_method": "noaux_tc"}, UnsupportedModel, "topk_method"),
    (LITE, {"model_type": "kimi_k2"}, UnsupportedModel, "model_type"),
    (PUBLISHED["zai-org/GLM-4.7-Flash"][0], {"mlp_layer_types": ["dense"]}, CorruptModel, "mlp_layer_types"),
]


@pytest.mark.parametrize(("config", "changes", "error", "name"), WRONG, ids=[str(case[1])[:50] for case in WRONG])
def test_what_changes_the_answer_is_refused_by_name(
    config: dict[str, Any], changes: dict[str, Any], error: type[Exception], name: str
) -> None:
    with pytest.raises(error, match=name):
        read_model({**config, **changes})


def test_null_fields_of_minicpm3_mean_no_factor() -> None:
    """scale_depth and dim_model_base, where transformers accepts null."""
    tiny = config_of("minicpm3")
    plain = read_model({**tiny, "scale_depth": None, "dim_model_base": None, "scale_emb": 1.0})
    names = [call.NAME for call in plain.program.calls]
    assert "scale" not in names
    assert any(map(is_scaled, read_model(tiny).program.calls))
