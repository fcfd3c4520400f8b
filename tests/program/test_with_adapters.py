"""with_adapters: rows without an adapter keep their bits, and rows with one get x W^T + s B (A x)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import by_architecture, config_of
from tests.runner.memories import write_rows
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.registry import read_model
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.passes.with_adapters import AdaptedProgram, AdapterSpec, linear_tensors, with_adapters
from twostroke.ops.products.linear import Linear
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import Model
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Weight
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.ops.unpack import unpack
from twostroke.runner.adapters.bank import AdapterBank
from twostroke.runner.adapters.lora_folder import LoraModule
from twostroke.runner.forward import OpByOp
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import F32, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.numpy_packer import NumpyPacker

SIZES = MemorySizes(4, 64, 32, 32, state_slots=2)
TOKENS = [5, 9, 31, 2, 77, 60, 8, 8, 14, 3]
PAGES = np.array([3, 0, 2, 1], np.int32)
RANK, FACTOR = 3, 0.7
MODULES = {"llama": ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"), "gpt2": ("c_attn", "c_fc")}


def loaded(config: Mapping[str, Any], folder: Path) -> tuple[Model, ModelWeights]:
    write_random(config, folder)
    model = read_model(config)
    with Checkpoint.open(folder) as checkpoint:
        return model, load_weights(checkpoint, model, format_choice("f32"), NumpyPacker())


class Pair:
    """A and B of an adapter in memory, for AdapterBank."""

    def __init__(self, made: AdaptedProgram) -> None:
        dice = np.random.default_rng(4)
        self.numbers = {
            part.module: (
                dice.standard_normal((RANK, part.down.rows), dtype=np.float32) * np.float32(0.2),
                dice.standard_normal((part.tensor.length, RANK), dtype=np.float32) * np.float32(0.2),
            )
            for part in made.parts
        }
        self.modules = {module: LoraModule(module, RANK, FACTOR) for module in self.numbers}

    def matrices(self, module: str) -> tuple[F32Array, F32Array]:
        down, up = self.numbers[module]
        return down, np.float32(FACTOR) * up


def banks_of(made: AdaptedProgram, pair: Any) -> AdapterBank:
    """Banks with an adapter in slot 1; slot 0 has none."""
    bank = AdapterBank(made.parts, F32)
    bank.fill(1, pair)
    return bank


def spec_of(program: Program, endings: Iterable[str]) -> AdapterSpec:
    names = [name for name in linear_tensors(program) if name.rpartition(".")[2] in endings]
    return AdapterSpec(2, dict.fromkeys(names, RANK))


def run(ops: Any, program: Program, weights: ModelWeights, who: int, bank: AdapterBank | None = None) -> F32Array:
    matrices = {**weights.matrices, **(bank.matrices if bank else {})}
    vectors = {**weights.vectors, **(bank.vectors if bank else {})}
    memory = StepMemory(program, matrices, vectors, KVKind.F32, SIZES)
    memory.adapters[:] = who
    return OpByOp(program, ops, memory)(write_rows(memory, TOKENS, 0, PAGES)).copy()


def merged(weight: Weight, packed: PackedWeight, adapters: Mapping[str, tuple[F32Array, F32Array]]) -> PackedWeight:
    """The matrix with s B A added to its tensors' rows."""
    matrix, row = unpack(packed).copy(), 0
    for tensor in weight.parts:
        if (module := tensor.name.removesuffix(".weight")) in adapters:
            down, up = adapters[module]
            matrix[row : row + tensor.length] += np.float32(FACTOR) * (up @ down)
        row += tensor.length
    return pack_weight(matrix, F32, packed.bias)


@pytest.mark.parametrize(("family", "modules"), [("llama-biases", "llama"), ("gpt2", "gpt2"), ("qwen3-tied", "llama")])
def test_an_adapter_adds_its_product_and_its_absence_adds_nothing(family: str, modules: str, tmp_path: Path) -> None:
    config = config_of(family)
    model, weights = loaded(config, tmp_path)
    made = with_adapters(model.plain, spec_of(model.plain, MODULES[modules]))
    check(made.program)
    pair = Pair(made)
    bank, adapters = banks_of(made, pair), pair.numbers
    plain = {
        weight.key: merged(weight, weights.matrices[weight.key], adapters)
        for call in model.plain.calls
        if isinstance(call, Linear)
        for weight in (call.weight,)
        if any(part.name.removesuffix(".weight") in adapters for part in weight.parts)
    }
    native = CpuOps(None, 1)
    for ops, program in ((ReferenceOps(), made.program), (native, fuse(made.program, PATTERNS))):
        whole = model.plain if ops is not native else fuse(model.plain, PATTERNS)
        expected = run(ops, whole, weights, -1)
        for who in (-1, 0):  # no adapter, and an adapter of zeros
            assert np.array_equal(run(ops, program, weights, who, bank), expected)
        changed = run(ops, program, weights, 1, bank)
        assert np.abs(changed - expected).max() > 0.05
        law = run(ops, whole, replace(weights, matrices={**weights.matrices, **plain}), -1)
        np.testing.assert_allclose(changed, law, atol=2e-4 * np.abs(law).max())
    native.close()


def test_rows_of_different_adapters_in_one_step_have_the_bits_that_they_have_alone(tmp_path: Path) -> None:
    model, weights = loaded(config_of("llama3-grouped"), tmp_path)
    made = with_adapters(model.plain, spec_of(model.plain, ("q_proj", "k_proj", "gate_proj")))
    program = fuse(made.program, PATTERNS)
    bank = banks_of(made, Pair(made))
    ops = CpuOps(None, 2)
    alone = {who: run(ops, program, weights, who, bank) for who in (-1, 1)}
    matrices, vectors = {**weights.matrices, **bank.matrices}, {**weights.vectors, **bank.vectors}
    memory = StepMemory(program, matrices, vectors, KVKind.F32, SIZES)
    sizes = write_rows(memory, TOKENS, 0, PAGES)
    memory.adapters[:3], memory.adapters[3:] = 1, -1
    together = OpByOp(program, ops, memory)(sizes).copy()
    ops.close()
    # The first rows see only rows of their own adapter; the later ones see keys that it has changed.
    assert np.array_equal(together[:3], alone[1][:3]) and not np.array_equal(together[3:], alone[-1][3:])


def test_without_adapters_the_program_is_what_it_was() -> None:
    program = read_model(config_of("llama3-grouped")).plain
    made = with_adapters(program, AdapterSpec(0, {"model.layers.0.self_attn.q_proj": 8}))
    assert made.program is program and made.parts == ()


def test_names_choose_tensors_of_products() -> None:
    program = read_model(config_of("llama3-grouped")).plain
    q, k, v = (f"model.layers.1.self_attn.{each}_proj" for each in "qkv")
    made = with_adapters(program, AdapterSpec(3, {k: 4, v: 17}))
    assert [(part.module, part.first_row) for part in made.parts] == [(k, 64), (v, 96)]
    shapes = [(part.down.rows, part.down.columns, part.up.rows, part.up.columns) for part in made.parts]
    assert shapes == [(64, 8, 32, 8), (64, 24, 32, 24)]
    (before,) = (
        i
        for i, call in enumerate(program.calls)
        if [p.name for p in _parts(call)] == [f"{each}.weight" for each in (q, k, v)]
    )
    linear, first, second = made.program.calls[before : before + 3]
    assert {linear.out.root, first.out.root, second.out.root} == {program.calls[before].out.root}
    assert second.out is program.calls[before].out


def _parts(call: Any) -> tuple[Any, ...]:
    return call.weight.parts if isinstance(call, Linear) else ()


@pytest.mark.parametrize("name", ["w_pack", "model.embed_tokens", "model.layers.9.mlp.down_proj", "q_proj"])
def test_a_module_that_is_no_product_is_refused(name: str) -> None:
    program = read_model(config_of("llama-tied")).plain
    with pytest.raises(ConfigError, match=name) as error:
        with_adapters(program, AdapterSpec(1, {"model.layers.0.self_attn.q_proj": 4, name: 4}))
    assert "down_proj" in error.value.why


@pytest.mark.parametrize("architecture", by_architecture())
def test_every_architecture_takes_adapters_on_all_its_linears(architecture: str) -> None:
    model = read_model(config_of(by_architecture()[architecture][0]))
    known = linear_tensors(model.plain)
    made = with_adapters(model.plain, AdapterSpec(2, dict.fromkeys(known, 4)))
    check(fuse(made.program, PATTERNS))
    assert {part.module for part in made.parts} == set(known) and len(known) >= model.num_layers
