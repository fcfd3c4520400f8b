"""Logits of prefill, chunked prefill and every decode step against transformers, float32 weights.

The bar of the issue is 1e-3 of the logit range; this holds ten times less.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.models.families import FAMILIES, make_checkpoint
from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.models.batch import Batch, Buffers
from twostroke.models.llama import LlamaModel
from twostroke.models.rope_tables import rope_table
from twostroke.ops.operands import AttentionBatch, new_kv_layer
from twostroke.ops.reference import ReferenceOps
from twostroke.spec.formats import F32, PAGE_TOKENS, KVKind
from twostroke.spec.model import ModelSpec
from twostroke.weights.load import load_folder

TOKENS = 75
BAR = 1e-4


def load(folder, ops) -> LlamaModel:
    spec, weights = load_folder(folder, F32)
    return LlamaModel(spec, weights, rope_table(spec.rope, spec.max_positions), ops)


def run(model: LlamaModel, token_ids: list[int], chunks: list[int]) -> np.ndarray:
    """Logits (T, V) of all positions, computed in chunks of the given sizes over scattered pages."""
    spec: ModelSpec = model.spec
    pages = np.random.default_rng(3).permutation(16).astype(np.int32)
    kv = [new_kv_layer(KVKind.F32, 16, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers)]
    buffers = Buffers(spec, max(chunks), max(chunks))
    rows, start = [], 0
    for count in chunks:
        positions = np.arange(start, start + count, dtype=np.int32)
        attention = AttentionBatch(
            np.array([0, count], np.int32), np.array([start + count], np.int32), np.ascontiguousarray(pages[None, :])
        )
        slots = (pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS).astype(np.int32)
        ids = np.array(token_ids[start : start + count], np.int32)
        batch = Batch(ids, positions, slots, attention, np.arange(count, dtype=np.int32))
        rows.append(model.forward(batch, kv, buffers).copy())
        start += count
    return np.concatenate(rows)


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / (expected.max() - expected.min()))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_agree_with_transformers(family, tmp_path, record_property):
    judge = make_checkpoint(family, tmp_path)
    token_ids = np.random.default_rng(5).integers(0, judge.config.vocab_size, TOKENS).tolist()
    with torch.no_grad():
        expected = judge(torch.tensor([token_ids])).logits[0].numpy()
    worst = {}
    for level in available_levels():
        ops = CpuOps(level, 2)
        model = load(tmp_path, ops)
        for name, chunks in {
            "prefill": [TOKENS],
            "chunked": [1, 16, 7, 33, 18],
            "decode": [40, *([1] * (TOKENS - 40))],
        }.items():
            worst[f"{level} {name}"] = relative_error(run(model, token_ids, chunks), expected)
        ops.close()
    worst["reference prefill"] = relative_error(run(load(tmp_path, ReferenceOps()), token_ids, [TOKENS]), expected)
    record_property("relative_error", max(worst.values()))
    print(family, f"{max(worst.values()):.2e}")
    assert max(worst.values()) < BAR, worst


def test_sharded_checkpoints_load_the_same(tmp_path):
    make_checkpoint("qwen2-biases", tmp_path / "one")
    make_checkpoint("qwen2-biases", tmp_path / "many", max_shard_size="60KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    ids = list(range(20))
    one, many = (run(load(tmp_path / name, ReferenceOps()), ids, [20]) for name in ("one", "many"))
    assert np.array_equal(one, many)
