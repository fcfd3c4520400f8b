"""cut: stages one after the other give the bits of the whole program, and each has only its layers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.random_checkpoint import write_random
from tests.models.families.covering import covering_architectures
from tests.models.families.stored import by_architecture, config_of
from tests.runner.memories import memory_of, write_rows
from tests.tiers import rest_daily
from twostroke.models.common.registry import read_model
from twostroke.ops.operands import F32Array
from twostroke.ops.passes.cut import Receive, Stage, cut, smallest_stages
from twostroke.ops.program.check import check
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Weight
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes
from twostroke.runner.forward import OpByOp
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.numpy_packer import NumpyPacker

SIZES = MemorySizes(4, 64, 32, 32, state_slots=2)
TOKENS = [5, 9, 31, 2, 77, 60, 8, 8, 14, 3, 90, 21, 17, 40, 1, 66, 50, 7, 11, 12]
PAGES = np.array([3, 0, 2, 1], np.int32)


def model_of(architecture: str) -> Model:
    return read_model(config_of(by_architecture()[architecture][0]))


class StageOps:
    """The ops of the reference, and `receive`, which returns the values of the stage before."""

    handed_over: F32Array

    def __init__(self) -> None:
        self._ops = ReferenceOps()

    def receive(self, out: F32Array) -> None:
        out[...] = self.handed_over

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)


def run(weights: ModelWeights, model: Model, stages: list[Stage], chunks: tuple[int, ...]) -> F32Array:
    """The logits of all positions. Each stage has a memory of its own."""
    memories = [memory_of(model, weights, KVKind.BF16, SIZES, stage.program) for stage in stages]
    ops = [StageOps() for _ in stages]
    rows, start = [], 0
    for count in chunks:
        result = np.empty((0, 0), np.float32)
        for stage, memory, own in zip(stages, memories, ops, strict=True):
            own.handed_over = result
            sizes = write_rows(memory, TOKENS[start : start + count], start, PAGES)
            result = OpByOp(stage.program, own, memory)(sizes).copy()
        rows.append(result)
        start += count
    return np.concatenate(rows)


@pytest.mark.parametrize("architecture", rest_daily(by_architecture(), covering_architectures()))
def test_stages_one_after_the_other_find_the_bits_of_the_whole(architecture: str, tmp_path: Path) -> None:
    model = model_of(architecture)
    chunks = (len(TOKENS),) if model.whole_prompts else (11, 1, 8)
    folder = write_random(config_of(by_architecture()[architecture][0]), tmp_path)
    with Checkpoint.open(folder) as checkpoint:
        weights = load_weights(checkpoint, model, format_choice("f32"), NumpyPacker())
    expected = run(weights, model, [cut(model.plain, 0, 1)], chunks)
    for program in (model.plain, model.program):
        for count in range(2 if program is model.plain else 1, min(4, len(smallest_stages(program))) + 1):
            stages = [cut(program, index, count) for index in range(count)]
            found = run(weights, model, stages, chunks)
            assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), count


@pytest.mark.parametrize("architecture", by_architecture())
@pytest.mark.parametrize("count", [2, 3])
def test_every_call_weight_and_cache_is_of_one_stage(architecture: str, count: int) -> None:
    """Exceptions are weights that several calls read: an embedding that is also the head, and blocks that layers
    share."""
    program = model_of(architecture).program
    stages = [cut(program, index, count) for index in range(count)]
    calls = [call for stage in stages for call in stage.program.calls if not isinstance(call, Receive)]
    assert calls == list(program.calls)
    assert [cache for stage in stages for cache in stage.program.caches] == list(program.caches)
    uses = Counter(item for call in program.calls for item in call.operands() if isinstance(item, Weight))
    weights = [weight for stage in stages for weight in stage.program.weights if uses[weight] == 1]
    assert weights == [weight for weight in program.weights if uses[weight] == 1]
    for before, after in zip(stages, stages[1:], strict=False):
        assert after.received is before.result and before.program.head == ()
        check(after.program)
    assert stages[0].received is None and stages[-1].result is program.logits


def test_the_largest_stage_is_as_small_as_it_can_be() -> None:
    config = {**config_of("llama2-multi-head"), "num_hidden_layers": 8, "vocab_size": 99}
    program = read_model(config).program
    layer = sum(weight.elements for weight in program.weights if "layers.0." in weight.key)
    sizes = [
        sum(weight.elements for weight in cut(program, index, 4).program.weights if "layers" in weight.key)
        for index in range(4)
    ]
    assert sum(sizes) == 8 * layer and max(sizes) < 2.5 * layer


def test_more_stages_than_there_are_places_are_refused() -> None:
    program = model_of("LlamaForCausalLM").program
    with pytest.raises(ConfigError, match="in 40 stages") as error:
        cut(program, 0, 40)
    most = int(error.value.fix.split()[-1].rstrip("."))
    assert 3 < most < 40 and cut(program, most - 1, most).result is program.logits
