"""Logits of prefill, chunked prefill and every decode step against transformers, float32 weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.families.whole import FAMILIES, make_checkpoint
from tests.models.parity import BAR, Loaded, other_tokens, parity_of
from twostroke.ops.reference import ReferenceOps


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_agree_with_transformers(family, tmp_path, record_property):
    parity = parity_of(family, tmp_path)
    worst = max(parity.errors.values())
    record_property("relative_error", worst)
    print(family, f"{worst:.2e}")
    assert worst < BAR, parity.errors
    assert not any(parity.tokens.values()), parity.tokens


def test_a_greedy_token_is_another_one_only_where_logits_are_no_tie():
    expected = np.array([[0.0, 1.0, 0.5], [0.0, 1.0, 1.0 - 1e-6], [1.0, 0.0, 0.2]], np.float32)
    found = np.array([[0.0, 0.4, 0.5], [0.0, 1.0 - 1e-6, 1.0], [1.0, 0.0, 0.2]], np.float32)
    assert other_tokens(found, expected) == 1 and other_tokens(expected, expected) == 0


def test_sharded_checkpoints_load_the_same(tmp_path):
    make_checkpoint("qwen2-biases", tmp_path / "one")
    make_checkpoint("qwen2-biases", tmp_path / "many", max_shard_size="60KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    ids = list(range(20))
    one, many = (Loaded(tmp_path / name, ReferenceOps()).run(ids, [20]) for name in ("one", "many"))
    assert np.array_equal(one, many)
