"""The counted work of a step equals what the meter counts when the real program runs over the same batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.families import make_checkpoint
from twostroke.backends.meter import MeterOps
from twostroke.cost.shape import Segment
from twostroke.cost.step_work import NOTHING, WorkCounter, kv_positions, visible_positions
from twostroke.cost.work import Work
from twostroke.models.batch import Batch, Buffers
from twostroke.models.llama import LlamaModel
from twostroke.models.rope_tables import rope_table
from twostroke.ops import linear
from twostroke.ops.operands import AttentionBatch, F32Array, PackedWeight, new_kv_layer
from twostroke.quant.formats import weight_format
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.spec.model import ModelSpec
from twostroke.weights.load import load_folder
from twostroke.weights.tree import ModelWeights

FAMILIES = (
    "llama2-multi-head",
    "llama-tied",
    "llama-biases",
    "llama-odd-sizes",
    "mistral-window",
    "qwen2-biases",
    "qwen2-window-upper-layers",
    "qwen3-head-norms",
    "qwen3-tied",
)
STEPS = {
    "one token": [Segment(99, 1, True)],
    "a whole prompt": [Segment(0, 37, True)],
    "a chunk in the middle": [Segment(16, 24, False)],
    "decodes and a chunk": [Segment(5, 1, True), Segment(19, 1, True), Segment(40, 1, True), Segment(8, 30, False)],
    "two prompts": [Segment(0, 3, True), Segment(0, 21, True)],
}


class PartMeter(MeterOps):
    """The head's product apart from the layers'."""

    def __init__(self, head: PackedWeight) -> None:
        super().__init__()
        self._head = head

    def linear(self, out: F32Array, x: F32Array, weight: PackedWeight) -> None:
        if weight is self._head:
            self._count("head", linear.cost(out, x, weight))
        else:
            super().linear(out, x, weight)

    def part(self, *names: str) -> Work:
        return sum((self.work.get(name, Work()) for name in names), Work())


def metered(spec: ModelSpec, weights: ModelWeights, kind: KVKind, step: list[Segment]) -> PartMeter:
    rows = [segment.num_tokens for segment in step]
    ends = [segment.start + segment.num_tokens for segment in step]
    pages = max(-(-end // PAGE_TOKENS) for end in ends)
    positions = np.concatenate([np.arange(s.start, s.start + s.num_tokens, dtype=np.int32) for s in step])
    last = np.cumsum(rows) - 1
    batch = Batch(
        token_ids=np.zeros(len(positions), np.int32),
        positions=positions,
        slots=np.zeros(len(positions), np.int32),
        attention=AttentionBatch(
            np.array([0, *np.cumsum(rows)], np.int32),
            np.array(ends, np.int32),
            np.zeros((len(step), pages), np.int32),
        ),
        logit_rows=np.array([row for row, s in zip(last, step, strict=True) if s.samples], np.int32),
    )
    meter = PartMeter(weights.head)
    kv = [new_kv_layer(kind, 1, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers)]
    model = LlamaModel(spec, weights, rope_table(spec.rope, spec.max_positions), meter)
    model.forward(batch, kv, Buffers(spec, len(positions), len(step)))
    return meter


@pytest.mark.parametrize(("name", "kind"), [("f32", KVKind.F32), ("int8", KVKind.BF16), ("int4", KVKind.INT4)])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_equal_the_meter(tmp_path: Path, family: str, name: str, kind: KVKind) -> None:
    make_checkpoint(family, tmp_path)
    chosen = weight_format(name)
    spec, weights = load_folder(tmp_path, chosen)
    counter = WorkCounter(spec, lambda role: chosen, kind)
    for step in STEPS.values():
        meter, work = metered(spec, weights, kind, step), counter.step(step)
        layers = meter.part("linear", "linear_add", "feed_forward")
        assert work.weights == layers
        assert work.head == meter.part("head")
        assert work.attention == meter.part("attention")
        assert work.other == meter.part("embed", "rms_norm", "head_norm", "rope", "kv_write", "gather_rows")
        assert work.total == meter.total()


def test_an_empty_step_is_no_work(tmp_path: Path) -> None:
    make_checkpoint("llama-tied", tmp_path)
    chosen = weight_format("int8")
    spec, _ = load_folder(tmp_path, chosen)
    assert WorkCounter(spec, lambda role: chosen, KVKind.BF16).step([]) == NOTHING


@given(st.integers(0, 300), st.integers(1, 200), st.integers(0, 250))
def test_closed_forms_equal_the_sums(start: int, num_tokens: int, window: int) -> None:
    rows = range(start, start + num_tokens)
    seen = [min(position + 1, window) if window else position + 1 for position in rows]
    assert visible_positions(start, num_tokens, window) == sum(seen)
    first = max(0, start + 1 - window) if window else 0
    assert kv_positions(start, num_tokens, window) == start + num_tokens - first
