"""Gemma's configs: the meaning of missing fields, the scale of the embedding, windows and rotations by layer, refused
fields.

tests/models/test_parity.py tests that their logits are transformers'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.families.stored import logits_of, write_checkpoint
from tests.models.fields.test_config_fields import ABSENT, agrees_with_transformers, ids, is_refused_by_name, named
from tests.models.parity import BAR, Loaded, relative_error
from tests.models.published.dense import PUBLISHED
from tests.weights.checkpoints import as_float32, stored
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.attention import Attention
from twostroke.ops.program.model import Model
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.rows.expressions import is_scaled
from twostroke.ops.rows.pointwise import Pointwise
from twostroke.runner.folder import load_folder
from twostroke.types.errors import CorruptModel
from twostroke.types.spec.formats import F32

PLAIN = {"rope_type": "default", "rope_theta": 500.0}
BY_TYPE = {"full_attention": PLAIN, "sliding_attention": {**PLAIN, "rope_theta": 30.0}}


def factor_of(model: Model) -> float:
    (call,) = [call for call in model.plain.body if is_scaled(call)]
    assert isinstance(call, Pointwise)
    return call.a


def test_the_factor_of_the_embedding_is_rounded_as_the_weights_are() -> None:
    config, _ = PUBLISHED["google/gemma-3-12b-it"]
    assert factor_of(read_model(config)) == 62.0  # the square root of 3840 is 61.97
    assert factor_of(read_model({**config, "torch_dtype": "float32"})) == pytest.approx(3840**0.5, rel=1e-7)
    assert factor_of(read_model({**config, "torch_dtype": "float16"})) == 61.96875
    for name, (published, _) in PUBLISHED.items():
        if "gemma" in name:
            width = published.get("text_config", published)["hidden_size"]
            (rounded,) = as_float32(stored(np.array([width**0.5]), "BF16"), "BF16")
            assert factor_of(read_model(published)) == rounded, name


def test_windows_rotations_and_scales_of_published_models() -> None:
    model = read_model(PUBLISHED["google/gemma-3-27b-it"][0])
    assert model.windows == tuple(0 if (i + 1) % 6 == 0 else 1024 for i in range(62))
    assert {rope.spec.theta: rope.spec.factor for rope in model.program.ropes} == {1e4: 1.0, 1e6: 8.0}
    assert model.max_positions == 131_072 and model.eos_token_ids == (1, 106)
    model = read_model(PUBLISHED["google/gemma-2-27b"][0])
    assert model.windows == (4096, 0) * 23
    calls = [call for call in model.program.body if isinstance(call, Attention)]
    assert {(call.scale, call.soft_cap) for call in calls} == {(144**-0.5, 50.0)}


SAME: list[tuple[str, dict[str, Any]]] = [
    ("gemma", {"eos_token_id": ABSENT, "head_dim": 24, "rope_parameters": ABSENT, "rope_theta": 40.0}),
    ("gemma2", {"final_logit_softcapping": ABSENT, "attn_logit_softcapping": ABSENT, "layer_types": ABSENT}),
    ("gemma2", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}}),
    ("gemma3", {"layer_types": ABSENT, "sliding_window_pattern": 2}),
    ("gemma3", {"layer_types": ABSENT, "sliding_window_pattern": ABSENT}),
    ("gemma3", {"rope_parameters": BY_TYPE}),
    ("gemma3", {"rope_parameters": ABSENT, "rope_theta": 70.0, "rope_local_base_freq": 20.0}),
    ("gemma3", {"rope_parameters": ABSENT, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
]


@pytest.mark.parametrize("case", SAME, ids=named)
def test_a_field_is_read_as_transformers_reads_it(case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    agrees_with_transformers(case, tmp_path)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("gemma", {"hidden_act": "mish"}, "hidden_act"),
    ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping"),
    ("gemma2", {"final_logit_softcapping": "wide"}, "final_logit_softcapping"),
    ("gemma2", {"layer_types": ["full_attention"]}, "layer_types"),
    ("gemma2", {"rope_parameters": BY_TYPE}, "per layer type"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ("gemma3", {"rope_parameters": PLAIN}, "rope_parameters"),
    ("gemma3", {"rope_parameters": {**BY_TYPE, "chunked_attention": PLAIN}}, "chunked_attention"),
    ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
    ("gemma3-with-images", {"text_config": None}, "text_config"),
    (
        "gemma3-with-images",
        {"text_config": {"model_type": "gemma3_text", "hidden_size": -3}},
        "text_config: hidden_size",
    ),
    ("gemma3-with-images", {"text_config": {"model_type": "llama"}}, "model_type"),
]


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_a_field_that_is_not_implemented_is_refused_by_name(case: tuple[str, dict[str, Any], str], tmp_path: Path):
    is_refused_by_name(case, tmp_path)


def test_both_spellings_of_names_beside_images_are_read_and_other_tensors_are_refused(tmp_path: Path) -> None:
    write_checkpoint("gemma3-with-images", tmp_path)
    assert "Gemma3ForConditionalGeneration" in (tmp_path / "config.json").read_text()
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    expected = Loaded(tmp_path, ReferenceOps()).run(ids(), [40])
    for old, new in (
        ("language_model.model.", "model.language_model."),
        ("model.language_model.", "language_model.model."),
    ):
        renamed = {name.replace(old, new) if name.startswith(old) else name: each for name, each in tensors.items()}
        save_file(renamed, path, metadata={"format": "pt"})
        assert (Loaded(tmp_path, ReferenceOps()).run(ids(), [40]) == expected).all()
    save_file({**tensors, "smell_tower.weight": np.zeros(2, np.float32)}, path, metadata={"format": "pt"})
    with pytest.raises(CorruptModel, match="smell_tower"):
        load_folder(tmp_path, F32)


def test_ids_behind_the_table_of_per_layer_embeddings_read_its_first_row(tmp_path: Path) -> None:
    """The vocabulary of Gemma 3n has ids for images and sounds that the table lacks."""
    write_checkpoint("gemma3n-fewer-words-per-layer", tmp_path)
    token_ids = [3, 149, 150, 198, 0, 160]
    expected = logits_of(tmp_path, token_ids)
    assert relative_error(Loaded(tmp_path, ReferenceOps()).run(token_ids, [6]), expected) < BAR
