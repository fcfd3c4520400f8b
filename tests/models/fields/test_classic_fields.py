"""Fields of the families with layer norms: the meaning of missing fields in transformers, and the fields that are
refused by name.

tests/models/test_parity.py tests that their logits are transformers'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from tests.models.families.stored import write_checkpoint
from tests.models.fields.test_config_fields import ABSENT, agrees_with_transformers, ids, is_refused_by_name, named
from tests.models.parity import Loaded
from twostroke.models.common.blocks.alibi import alibi_slopes
from twostroke.ops.reference import ReferenceOps

HALF = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
WHOLE = {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0, "partial_rotary_factor": 1.0}

SAME: list[tuple[str, dict[str, Any]]] = [
    ("stablelm", {"rope_parameters": ABSENT, "layer_norm_eps": ABSENT}),
    ("stablelm", {"rope_parameters": HALF}),
    ("starcoder2", {"sliding_window": ABSENT, "norm_epsilon": ABSENT, "hidden_act": ABSENT}),
    ("nemotron", {"rope_parameters": ABSENT, "hidden_act": ABSENT, "norm_eps": ABSENT}),
    ("phi", {"rope_parameters": ABSENT, "hidden_act": ABSENT}),
    ("phi", {"rope_parameters": WHOLE}),
    ("gpt-neox", {"rope_parameters": ABSENT, "rotary_pct": 0.5, "rotary_emb_base": 50}),
    ("gpt-neox", {"rope_parameters": ABSENT, "hidden_act": "gelu_new"}),
    ("gptj", {"rotary_dim": 16, "activation_function": ABSENT, "layer_norm_epsilon": ABSENT}),
    ("falcon-one-kv-head", {"rope_parameters": ABSENT, "multi_query": ABSENT, "activation": ABSENT}),
    ("falcon-groups", {"num_ln_in_parallel_attn": ABSENT}),
    ("bloom", {"layer_norm_epsilon": ABSENT}),
    ("mpt", {"attn_config": ABSENT}),
    ("opt", {"activation_function": ABSENT, "word_embed_proj_dim": 60}),
    ("hunyuan", {"rope_parameters": ABSENT, "rms_norm_eps": ABSENT}),
]


@pytest.mark.parametrize("case", SAME, ids=named)
def test_a_field_is_read_as_transformers_reads_it(case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    agrees_with_transformers(case, tmp_path)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("starcoder2", {"hidden_act": "gelu_10"}, "hidden_act"),
    ("gpt-neox", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("phi", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("gpt-neox", {"rotary_pct": 1.5, "rope_parameters": ABSENT}, "partial_rotary_factor"),
    ("gptj", {"rotary_dim": 15}, "rotary_dim"),
    ("gptj", {"rotary_dim": 18}, "rotary_dim"),
    ("gptj", {"hidden_size": 32}, "n_embd"),
    ("falcon-groups", {"alibi": True}, "alibi"),
    ("falcon-groups", {"parallel_attn": False}, "parallel_attn"),
    ("falcon-groups", {"num_kv_heads": 4}, "num_key_value_heads"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm"),
    ("mpt", {"attn_config": {"clip_qkv": -6.0}}, "clip_qkv"),
    ("mpt", {"attn_config": {"alibi_bias_max": 4}}, "alibi_bias_max"),
    ("hunyuan", {"rope_parameters": {"rope_type": "dynamic", "alpha": -1.0, "factor": 1.0}}, "alpha"),
]


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_a_field_that_does_not_fit_is_refused_by_name(case: tuple[str, dict[str, Any], str], tmp_path: Path) -> None:
    is_refused_by_name(case, tmp_path)


@pytest.mark.parametrize(("family", "begin"), [("bloom", "transformer."), ("opt", "model.")])
def test_names_without_their_beginning_are_read(family: str, begin: str, tmp_path: Path) -> None:
    """The names are those of the published files."""
    write_checkpoint(family, tmp_path)
    expected = Loaded(tmp_path, ReferenceOps()).run(ids(), [40])
    path = tmp_path / "model.safetensors"
    stored = {name.removeprefix(begin): tensor for name, tensor in load_file(path).items()}
    save_file(stored, path, metadata={"format": "pt"})
    assert (Loaded(tmp_path, ReferenceOps()).run(ids(), [40]) == expected).all()


def test_slopes_of_a_power_of_two_and_between() -> None:
    assert alibi_slopes(8) == tuple(2.0**-i for i in range(1, 9))
    assert alibi_slopes(6) == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    assert len(set(alibi_slopes(112))) == 112
