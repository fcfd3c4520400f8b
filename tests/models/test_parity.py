"""Logits of prefill, chunked prefill and every decode step against transformers, float32 weights.

The bar of the issue is 1e-3 of the logit range; this holds ten times less.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.models.families import FAMILIES, make_checkpoint
from tests.runner.memories import memory_of, write_rows
from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes
from twostroke.runner.folder import load_folder
from twostroke.runner.forward import Forward, OpByOp
from twostroke.spec.formats import F32, KVKind

TOKENS = 75
BAR = 1e-4


class Loaded:
    """A folder's model on one backend: compiled natively, or the reference op by op; fresh memory for each run."""

    def __init__(self, folder: Path, ops: CpuOps | ReferenceOps, context: int = 256) -> None:
        self.sizes = MemorySizes(16, context, max(80, context), max(80, context))
        self.model, self.weights = load_folder(folder, F32)
        self.ops = ops

    def run(self, token_ids: list[int], chunks: list[int]) -> np.ndarray:
        """Logits (T, V) of all positions, computed in chunks of the given sizes over scattered pages."""
        pages = np.random.default_rng(3).permutation(16).astype(np.int32)[: self.sizes.max_pages]
        plain = isinstance(self.ops, ReferenceOps)
        program = self.model.plain if plain else self.model.program
        memory = memory_of(self.model, self.weights, KVKind.F32, self.sizes, program)
        forward: Forward = OpByOp(program, self.ops, memory) if plain else self.ops.compile(program, memory)
        rows, start = [], 0
        for count in chunks:
            rows.append(forward(write_rows(memory, token_ids[start : start + count], start, pages)).copy())
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
        model = Loaded(tmp_path, ops)
        for name, chunks in {
            "prefill": [TOKENS],
            "chunked": [1, 16, 7, 33, 18],
            "decode": [40, *([1] * (TOKENS - 40))],
        }.items():
            worst[f"{level} {name}"] = relative_error(model.run(token_ids, chunks), expected)
        ops.close()
    worst["reference prefill"] = relative_error(Loaded(tmp_path, ReferenceOps()).run(token_ids, [TOKENS]), expected)
    record_property("relative_error", max(worst.values()))
    print(family, f"{max(worst.values()):.2e}")
    assert max(worst.values()) < BAR, worst


def test_sharded_checkpoints_load_the_same(tmp_path):
    make_checkpoint("qwen2-biases", tmp_path / "one")
    make_checkpoint("qwen2-biases", tmp_path / "many", max_shard_size="60KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    ids = list(range(20))
    one, many = (Loaded(tmp_path / name, ReferenceOps()).run(ids, [20]) for name in ("one", "many"))
    assert np.array_equal(one, many)
