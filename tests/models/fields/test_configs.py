"""Model: the family's flags are compared with transformers' own configs and parameter counts, and hostile configs are
refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import judged
from tests.models.described import described
from tests.tiers import examples
from twostroke.models.common.registry import architectures, read_model
from twostroke.ops.operands import new_kv_layer
from twostroke.types.errors import CorruptModel, ModelError, UnsupportedModel
from twostroke.types.spec.formats import BF16, F32, KVKind, WeightFormat, WeightKind
from twostroke.types.spec.rope import RopeKind
from twostroke.weights.tensors import wanted_tensors

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "eos_token_id": [128_001, 128_008, 128_009],
    "bos_token_id": 128_000,
}

SMALL = {
    "vocab_size": 99, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**LLAMA, **changes}.items() if value != "absent"}


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 20}),
        ("llama", {"tie_word_embeddings": True}),
        ("mistral", {"sliding_window": 16}),
        ("mistral", {"sliding_window": None, "head_dim": 16}),
        ("qwen2", {}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}),
        ("qwen3", {"head_dim": 16}),
        ("qwen3", {"head_dim": 24, "attention_bias": True, "tie_word_embeddings": True}),
    ],
)
def test_families_agree_with_transformers(model_type, changes):
    judge = described(model_type=model_type, **{**SMALL, **changes})
    for written in judge.written:
        spec = read_model({**written, "architectures": [judge.architecture]})
        assert spec.parameters() == judge.parameters
        held = dict(judge.shapes)
        if judge.config["tie_word_embeddings"]:
            held.pop("lm_head.weight")
        assert {tensor.name: tensor.shape for tensor in wanted_tensors(spec)} == held
        assert {kind.head_dim for kind in spec.paged_kinds} == set(judge.head_dims)
        if model_type == "mistral":
            assert spec.windows == (judge.config["sliding_window"] or 0,) * 4
        else:
            assert list(spec.windows) == judge.windows


def test_known_sizes():
    spec = read_model(LLAMA)
    assert spec.parameters() == 1_235_814_400
    assert spec.kv_bytes_per_token(KVKind.BF16) == 2 * 16 * 8 * 64 * 2
    assert spec.eos_token_ids == (128_001, 128_008, 128_009) and spec.bos_token_id == 128_000
    # 128256, 3072, 2048, 16384 and 8192 rows are all multiples of 64, so there is no padding and the parameters give
    # the bytes.
    vectors = sum(vector.length for vector in spec.program.vectors)
    assert spec.weight_bytes(lambda weight: BF16) == 2 * (spec.parameters() - vectors) + 4 * vectors
    # A group of 256 columns has 128 bytes of values, 8 of multipliers and 2 of scale.
    int4 = WeightFormat(WeightKind.INT4, 256)
    assert spec.weight_bytes(lambda weight: int4) == (spec.parameters() - vectors) * 138 // 256 + 4 * vectors
    mixed = spec.weight_bytes(lambda weight: F32 if weight.role == "embedding" else BF16)
    assert mixed - spec.weight_bytes(lambda weight: BF16) == 2 * 128_256 * 2048


def test_articles_figures():
    thirteen = read_model(
        changed(
            hidden_size=5120, num_hidden_layers=40, num_attention_heads=40, num_key_value_heads="absent", head_dim=None
        )
    )
    assert thirteen.kv_bytes_per_token(KVKind.BF16) == 819_200
    seventy = read_model(changed(hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, head_dim=128))
    assert seventy.kv_bytes_per_token(KVKind.BF16) * 2000 == 655_360_000


def test_model_type_stands_in_for_missing_architectures():
    assert read_model(changed(architectures="absent", model_type="qwen2")).architecture == "Qwen2ForCausalLM"


def test_old_and_new_rope_forms_read_the_same():
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    old = read_model(changed(rope_scaling={**scaling, "rope_type": "llama3"}))
    older = read_model(changed(rope_scaling={**scaling, "type": "llama3"}))
    new = read_model(
        changed(rope_theta="absent", rope_parameters={**scaling, "rope_type": "llama3", "rope_theta": 500_000.0})
    )
    assert old.program.ropes == older.program.ropes == new.program.ropes
    (rope,) = old.program.ropes
    assert rope.spec.kind is RopeKind.LLAMA3 and rope.spec.theta == 500_000.0


def test_ids_outside_the_vocabulary_are_dropped():
    spec = read_model(changed(bos_token_id=-1, eos_token_id=[5, 128_256]))
    assert spec.bos_token_id is None and spec.eos_token_ids == (5,)


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [
        ({"architectures": ["LLamaForCausalLM"]}, UnsupportedModel, "LlamaForCausalLM"),
        ({"architectures": ["NoSuchModel"]}, UnsupportedModel, "NoSuchModel"),
        ({"architectures": "absent"}, UnsupportedModel, "architectures"),
        ({"architectures": "LlamaForCausalLM"}, CorruptModel, "architectures"),
        ({"vocab_size": "absent"}, CorruptModel, "vocab_size"),
        ({"vocab_size": -1}, CorruptModel, "vocab_size"),
        ({"vocab_size": 2**40}, CorruptModel, "vocab_size"),
        ({"vocab_size": True}, CorruptModel, "vocab_size"),
        ({"hidden_size": "2048"}, CorruptModel, "hidden_size"),
        ({"hidden_size": 2050, "head_dim": None}, CorruptModel, "hidden_size"),
        ({"head_dim": 63}, CorruptModel, "head_dim"),
        ({"num_hidden_layers": 10**9}, CorruptModel, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, CorruptModel, "num_key_value_heads"),
        ({"num_key_value_heads": 0}, CorruptModel, "num_key_value_heads"),
        ({"rms_norm_eps": float("nan")}, CorruptModel, "rms_norm_eps"),
        ({"rms_norm_eps": [1]}, CorruptModel, "rms_norm_eps"),
        ({"hidden_act": "gelu"}, UnsupportedModel, "hidden_act"),
        ({"tie_word_embeddings": "yes"}, CorruptModel, "tie_word_embeddings"),
        ({"quantization_config": {"quant_method": "exl3"}}, UnsupportedModel, "exl3"),
        ({"torch_dtype": "int8"}, UnsupportedModel, "dtype"),
        ({"rope_theta": 0}, CorruptModel, "rope_theta"),
        ({"rope_scaling": {"type": "mrope"}}, UnsupportedModel, "mrope"),
        ({"rope_scaling": {"type": "linear"}}, CorruptModel, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": float("inf")}}, CorruptModel, "factor"),
        ({"rope_scaling": []}, CorruptModel, "rope_scaling"),
        ({"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]}}, CorruptModel, "short_factor"),
        (
            {"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}},
            CorruptModel,
            "high_freq_factor",
        ),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, UnsupportedModel, "layer type"),
        ({"eos_token_id": "</s>"}, CorruptModel, "eos_token_id"),
        ({"layer_types": ["full_attention"]}, CorruptModel, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 16, "sliding_window": 8}, UnsupportedModel, "layer_types"),
    ],
)
def test_impossible_configs_name_the_field(changes, error, word):
    with pytest.raises(error) as caught:
        read_model(changed(**changes))
    assert word in str(caught.value)
    assert caught.value.why and caught.value.fix


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_what_a_silent_config_means_is_what_transformers_says(name: str) -> None:
    kind = architectures()[name].model_type
    default = described(model_type=kind).config
    absent = {"num_key_value_heads", "max_position_embeddings", "head_dim"}
    bare = {key: value for key, value in LLAMA.items() if key not in absent}
    spec = read_model({**bare, "architectures": [name], "num_attention_heads": 32, "hidden_size": 4096})
    assert default["max_position_embeddings"] == spec.max_positions
    assert {kind.kv_heads for kind in spec.paged_kinds} == {8 if default["model_type"] == "mistral" else 32}


OUR_OWN_REFERENCE = {
    *("Grok1ModelForCausalLM", "Rwkv6ForCausalLM", "RWKV7ForCausalLM"),
    *("NeoBERT", "NeoBERTLMHead", "NeoBERTModel"),
    *("InternLM2ForCausalLM", "ExaoneForCausalLM", "MiniCPMForCausalLM", "OrionForCausalLM", "DeciLMForCausalLM"),
    *("XverseForCausalLM", "BaichuanForCausalLM", "JinaBertModel"),
    *("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "DeepseekForCausalLM"),
}
"""Architectures that transformers does not have. tests/models has references of our own, or parts of its models under
published names."""


def test_every_architecture_is_one_that_transformers_knows() -> None:
    asked = sorted((entry.name, entry.model_type) for entry in architectures().values())

    def ask() -> list[str]:
        import transformers

        for name, kind in asked:
            if name not in OUR_OWN_REFERENCE:
                assert transformers.AutoConfig.for_model(kind) is not None
        return [name for name, _ in asked if hasattr(transformers, name)]

    known = judged.said("architectures that transformers has", [asked, sorted(OUR_OWN_REFERENCE)], ask)
    assert set(known) == {name for name, _ in asked} - OUR_OWN_REFERENCE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
ROPE_WORDS = st.sampled_from([*RopeKind, "su", 3, None])
KEYS = st.sampled_from(
    [*LLAMA, "rope_scaling", "rope_parameters", "sliding_window", "layer_types", "hidden_act", "dtype"]
)
ROPES = st.dictionaries(
    st.sampled_from(["factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "short_factor",
                     "long_factor", "original_max_position_embeddings", "attention_factor", "mscale", "rope_theta",
                     "partial_rotary_factor", "truncate"]),
    JSON | st.floats(0, 100) | st.integers(0, 100),
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=4), ROPES, ROPE_WORDS)
def test_hostile_configs_raise_nothing_but_model_errors(changes, rope, word):
    config = {**LLAMA, "rope_scaling": {**rope, "rope_type": word}, **changes}
    try:
        spec = read_model(config)
    except ModelError as error:
        assert len(str(error)) < 1000
    else:
        assert spec.parameters() > 0 and len(spec.windows) == spec.num_layers


@pytest.mark.parametrize(
    ("kind", "head_dim", "expected"),
    [
        (KVKind.F32, 64, 512),
        (KVKind.BF16, 64, 256),
        (KVKind.INT8, 64, 128 + 4),
        (KVKind.INT4, 64, 64 + 4),
        (KVKind.INT8, 80, 160 + 4),
        (KVKind.INT4, 80, 40 + 48 + 4),
    ],
)
def test_bytes_of_a_position_in_one_head(kind: KVKind, head_dim: int, expected: int) -> None:
    """K and V have a bf16 scale each in the integer formats. int4's V comes in blocks of 32 dimensions."""
    assert kind.token_bytes(head_dim) == expected
    assert new_kv_layer(kind, 3, 2, head_dim).data.nbytes == 3 * 2 * 16 * expected
