"""Logits of prefill, chunked prefill and every decode step against transformers, float32 weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.families import FAMILIES, make_checkpoint
from tests.models.parity import BAR, Loaded, errors_of
from twostroke.ops.reference import ReferenceOps


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_agree_with_transformers(family, tmp_path, record_property):
    errors = errors_of(family, tmp_path)
    worst = max(errors.values())
    record_property("relative_error", worst)
    print(family, f"{worst:.2e}")
    assert worst < BAR, errors


def test_sharded_checkpoints_load_the_same(tmp_path):
    make_checkpoint("qwen2-biases", tmp_path / "one")
    make_checkpoint("qwen2-biases", tmp_path / "many", max_shard_size="60KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    ids = list(range(20))
    one, many = (Loaded(tmp_path / name, ReferenceOps()).run(ids, [20]) for name in ("one", "many"))
    assert np.array_equal(one, many)
