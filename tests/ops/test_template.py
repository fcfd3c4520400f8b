"""A derived program is, byte for byte, the one that recording gives; where that is not certain, none is derived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families import make_checkpoint
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.program import Program
from twostroke.backends.cpu.template import Template
from twostroke.models.batch import Batch, Buffers
from twostroke.models.llama import LlamaModel
from twostroke.models.rope_tables import rope_table
from twostroke.ops.operands import F32Array, new_kv_layer
from twostroke.quant.formats import weight_format
from twostroke.runner.batch_builder import BatchBuilder
from twostroke.runner.forward import Recorded
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.types.errors import BackendError
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.request import Request
from twostroke.types.sampling_params import SamplingParams
from twostroke.weights.load import load_folder

MAX_TOKENS, MAX_SEQUENCES, PAGES_EACH, VOCABULARY = 48, 4, 4, 199
KINDS = {"llama-head-32": "f32", "qwen3-head-norms": "int8", "qwen2-window-upper-layers": "int8"}


class CountingOps(CpuOps):
    """Counts what is recorded."""

    recordings = 0

    def recorder(self) -> Any:
        self.recordings += 1
        return super().recorder()


class Forgetful(CountingOps):
    """Records every shape."""

    def template(self) -> Any:
        return Never()


class Never(Template):
    def derive(self, sizes: Any) -> None:
        return None


@dataclass
class World:
    """A runner's forward and its batches; programs are kept for comparison."""

    ops: CountingOps
    model: LlamaModel
    kv: list[Any]
    buffers: Buffers
    batches: BatchBuilder
    forward: Recorded

    def program(self, batch: Batch) -> Program:
        """What was run for this batch."""
        return self.forward._programs[batch][0]

    def recorded(self, batch: Batch) -> Program:
        recorder = CpuOps.recorder(self.ops)
        replace(self.model, ops=recorder).forward(batch, self.kv, self.buffers)
        return recorder.program()


def new_world(like: LlamaModel, ops: CountingOps) -> World:
    spec, model = like.spec, replace(like, ops=ops)
    pages = MAX_SEQUENCES * PAGES_EACH
    kv = [new_kv_layer(KVKind.BF16, pages, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers)]
    buffers = Buffers(spec, MAX_TOKENS, MAX_SEQUENCES)
    batches = BatchBuilder(MAX_TOKENS, MAX_SEQUENCES, PAGES_EACH)
    return World(ops, model, kv, buffers, batches, Recorded(model, ops, kv, buffers))


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    folder = tmp_path_factory.mktemp(request.param)
    make_checkpoint(request.param, folder)
    spec, weights = load_folder(folder, weight_format(KINDS[request.param]))
    ops = CountingOps(None, 1)
    yield LlamaModel(spec, weights, rope_table(spec.rope, PAGES_EACH * PAGE_TOKENS), ops)
    ops.close()


def plan_of(counts: list[int], samples: list[bool]) -> Plan:
    """Prompts read from their beginning: as many tokens as there are counts."""
    planned = []
    for index, (count, sampled) in enumerate(zip(counts, samples, strict=True)):
        known = [(31 * index + 7 * i + count) % VOCABULARY for i in range(count)]
        pages = tuple(range(PAGES_EACH * index, PAGES_EACH * (index + 1)))
        request = Request(f"r{index}", f"r{index}", tuple(known), SamplingParams(), 0, 8, frozenset(), 0.0)
        planned.append(PlannedSequence(request, 0, count, known, pages, sampled))
    return Plan(0, tuple(planned))


shapes = st.lists(st.tuples(st.integers(1, MAX_TOKENS // MAX_SEQUENCES), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(st.lists(shapes, min_size=1, max_size=12))
def test_derived_programs_and_their_logits_are_those_of_recorded_ones(model: LlamaModel, steps: Any) -> None:
    deriving = new_world(model, model.ops)
    recording = new_world(model, Forgetful(None, 1))
    for step in steps:
        plan = plan_of(*map(list, zip(*step, strict=True)))
        batch = deriving.batches.build(plan)
        logits = deriving.forward(batch)
        assert np.array_equal(logits, recording.forward(recording.batches.build(plan)))
        found, expected = deriving.program(batch), deriving.recorded(batch)
        assert found.words().tobytes() == expected.words().tobytes() and found.names == expected.names
    recording.ops.close()


def test_prompts_of_all_lengths_and_steps_of_all_widths_need_few_recordings(model: LlamaModel) -> None:
    world = new_world(model, model.ops)
    before = world.ops.recordings
    for tokens in range(1, MAX_TOKENS + 1):
        for sampled in (True, False):
            batch = world.batches.build(plan_of([tokens], [sampled]))
            world.forward(batch)
            assert world.program(batch).words().tobytes() == world.recorded(batch).words().tobytes()
    for sequences in range(1, MAX_SEQUENCES + 1):
        for sampling in range(1, sequences + 1):
            samples = [i < sampling for i in range(sequences)]
            world.forward(world.batches.build(plan_of([3] * sequences, samples)))
    assert 4 <= world.ops.recordings - before <= 8


def test_arrays_that_lie_elsewhere_and_batches_that_do_not_fit_are_recorded(model: LlamaModel) -> None:
    world = new_world(model, model.ops)
    for tokens in (5, 9, 11):
        world.forward(world.batches.build(plan_of([tokens], [True])))
    before = world.ops.recordings
    batch = world.batches.build(plan_of([7], [True]))
    world.forward(batch)
    assert world.ops.recordings == before
    elsewhere = replace(batch, positions=batch.positions.copy())
    world.forward(elsewhere)
    assert world.ops.recordings == before + 1
    short = world.batches.build(plan_of([13], [True]))
    with pytest.raises(BackendError, match="positions must be"):
        world.forward(replace(short, positions=short.positions[:12]))


def test_rows_that_the_plan_does_not_have_are_refused_in_every_run(model: LlamaModel) -> None:
    world = new_world(model, model.ops)
    for tokens in (5, 9, 11, 7):
        batch = world.batches.build(plan_of([tokens], [True]))
        world.forward(batch)
    for wrong in (6, 8, MAX_TOKENS + 1):
        batch.attention.row_starts[-1] = wrong
        with pytest.raises(BackendError, match="row_starts must be"):
            world.forward(batch)
    world.forward(world.batches.build(plan_of([7], [True])))


def tiny(ops: CpuOps, out: F32Array, x: F32Array, rows: list[int]) -> Program:
    """Columns are 8: a sample of 8 tokens could be either."""
    recorder = ops.recorder()
    tokens, chosen = rows
    recorder.rms_norm(out[:tokens], x[:tokens], WEIGHT, 1e-5)
    recorder.gather_rows(out[:chosen], x, ROWS[:chosen])
    return recorder.program()


WEIGHT, ROWS = np.ones(8, np.float32), np.arange(32, dtype=np.int32)


def test_what_could_be_a_size_or_a_constant_is_not_guessed() -> None:
    ops, template = CpuOps(None, 1), Template()
    out, x = np.zeros((32, 8), np.float32), np.ones((32, 8), np.float32)
    assert template.derive([3, 2]) is None  # nothing seen
    template.learn(tiny(ops, out, x, [8, 8]), [8, 8])
    assert template.derive([9, 9]) is None  # one sample
    assert template.derive([8, 8]) is not None
    template.learn(tiny(ops, out, x, [9, 9]), [9, 9])
    assert template.derive([9, 8]) is None  # tokens or rows
    together = template.derive([5, 5])
    assert together is not None and together.words().tobytes() == tiny(ops, out, x, [5, 5]).words().tobytes()
    template.learn(tiny(ops, out, x, [9, 8]), [9, 8])
    for sizes in ([1, 1], [8, 3], [32, 32]):
        derived = template.derive(sizes)
        assert derived is not None and derived.words().tobytes() == tiny(ops, out, x, sizes).words().tobytes()
    ops.close()


def test_a_size_that_never_varied_is_not_extrapolated() -> None:
    ops, template = CpuOps(None, 1), Template()
    out, x = np.zeros((32, 8), np.float32), np.ones((32, 8), np.float32)
    for tokens in (3, 4, 5):  # rows follow nothing that is told
        template.learn(tiny(ops, out, x, [tokens, 7]), [tokens, 2])
    assert template.derive([6, 2]) is not None
    assert template.derive([6, 3]) is None
    template.learn(tiny(ops, out, x, [6, 8]), [6, 3])
    assert template.derive([6, 3]) is None  # no explanation is left
    ops.close()


@pytest.mark.parametrize("change", ["operand", "number", "ops"])
def test_samples_of_different_programs_end_all_deriving(change: str) -> None:
    ops, template = CpuOps(None, 1), Template()
    out, x = np.zeros((32, 8), np.float32), np.ones((32, 8), np.float32)
    for sizes in ([3, 2], [4, 3], [4, 1]):
        template.learn(tiny(ops, out, x, sizes), sizes)
    assert template.derive([6, 5]) is not None
    recorder = ops.recorder()
    recorder.rms_norm(out[:3], x[:3], WEIGHT, 1e-6 if change == "number" else 1e-5)
    recorder.gather_rows(out[:2], x.copy() if change == "operand" else x, ROWS[:2])
    if change == "ops":
        recorder.gather_rows(out[:2], x, ROWS[:2])
    template.learn(recorder.program(), [3, 2])
    assert template.derive([6, 5]) is None
    template.learn(tiny(ops, out, x, [6, 5]), [6, 5])
    assert template.derive([6, 5]) is None
    ops.close()
