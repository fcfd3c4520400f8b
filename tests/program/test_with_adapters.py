"""with_adapters: rows without an adapter keep their bits, rows with one get x W^T + s B (A x)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.random_checkpoint import write_random
from tests.models.families import FAMILIES, by_architecture
from tests.ops.banks import joined
from tests.runner.memories import write_rows
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.registry import read_model
from twostroke.ops.linear import Linear
from twostroke.ops.operands import F32Array, PackedWeight, unpack
from twostroke.ops.patterns import PATTERNS
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.ops.with_adapters import AdaptedProgram, AdapterSpec, with_adapters
from twostroke.program.check import check
from twostroke.program.fuse import fuse
from twostroke.program.model import Model
from twostroke.program.program import Program
from twostroke.program.values import Weight
from twostroke.quant.codec import pack_weight
from twostroke.quant.formats import format_choice
from twostroke.runner.forward import OpByOp
from twostroke.spec.formats import F32, KVKind
from twostroke.types.errors import ConfigError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.numpy_packer import NumpyPacker

SIZES = MemorySizes(4, 64, 32, 32, state_slots=2)
TOKENS = [5, 9, 31, 2, 77, 60, 8, 8, 14, 3]
PAGES = np.array([3, 0, 2, 1], np.int32)
RANK, FACTOR = 3, 0.7
MODULES = {"llama": ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"), "gpt2": ("c_attn", "mlp.c_proj", "c_fc")}


def loaded(config: Mapping[str, Any], folder: Path) -> tuple[Model, ModelWeights]:
    write_random(config, folder)
    model = read_model(config)
    with Checkpoint.open(folder) as checkpoint:
        return model, load_weights(checkpoint, model, format_choice("f32"), NumpyPacker())


def adapters_of(made: AdaptedProgram) -> dict[str, tuple[F32Array, F32Array]]:
    """A (rank, columns) and B (rows, rank) of adapter 1 for each linear; adapter 0 has none."""
    dice = np.random.default_rng(4)
    return {
        part.module: (
            dice.standard_normal((RANK, product.weight.columns), dtype=np.float32) * np.float32(0.2),
            dice.standard_normal((part.rows, RANK), dtype=np.float32) * np.float32(0.2),
        )
        for product in made.products
        for part in product.parts
    }


def banks_of(made: AdaptedProgram, adapters: Mapping[str, tuple[F32Array, F32Array]]) -> dict[str, PackedWeight]:
    found = {}
    for product in made.products:
        downs = [np.zeros((product.down.rows, product.down.columns), np.float32) for _ in range(2)]
        ups = [np.zeros((product.up.rows, product.up.columns), np.float32) for _ in range(2)]
        for part in product.parts:
            ranks = slice(part.first_rank, part.first_rank + RANK)
            downs[1][ranks] = adapters[part.module][0]
            ups[1][part.first_row : part.first_row + part.rows, ranks] = FACTOR * adapters[part.module][1]
        for weight, matrices in ((product.down, downs), (product.up, ups)):
            found[weight.key] = joined([pack_weight(each, F32) for each in matrices])
    return found


def run(ops: Any, program: Program, matrices: Mapping[str, PackedWeight], weights: ModelWeights, who: int) -> F32Array:
    memory = StepMemory(program, matrices, weights.vectors, KVKind.F32, SIZES)
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
    config = FAMILIES[family]().to_dict()
    model, weights = loaded(config, tmp_path)
    names = tuple(name for name in MODULES[modules] if "." not in name)
    made = with_adapters(model.plain, AdapterSpec(2, RANK, names))
    check(made.program)
    adapters = adapters_of(made)
    matrices = {**weights.matrices, **banks_of(made, adapters)}
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
        expected = run(ops, whole, weights.matrices, weights, -1)
        for who in (-1, 0):  # none; one of zeros
            assert np.array_equal(run(ops, program, matrices, weights, who), expected)
        changed = run(ops, program, matrices, weights, 1)
        assert np.abs(changed - expected).max() > 0.05
        law = run(ops, whole, {**weights.matrices, **plain}, weights, -1)
        np.testing.assert_allclose(changed, law, atol=2e-4 * np.abs(law).max())
    native.close()


def test_rows_of_different_adapters_in_one_step_have_the_bits_that_they_have_alone(tmp_path: Path) -> None:
    model, weights = loaded(FAMILIES["llama3-grouped"]().to_dict(), tmp_path)
    made = with_adapters(model.plain, AdapterSpec(2, RANK, ("q_proj", "k_proj", "gate_proj")))
    program = fuse(made.program, PATTERNS)
    matrices = {**weights.matrices, **banks_of(made, adapters_of(made))}
    ops = CpuOps(None, 2)
    alone = {who: run(ops, program, matrices, weights, who) for who in (-1, 1)}
    memory = StepMemory(program, matrices, weights.vectors, KVKind.F32, SIZES)
    sizes = write_rows(memory, TOKENS, 0, PAGES)
    memory.adapters[:3], memory.adapters[3:] = 1, -1
    together = OpByOp(program, ops, memory)(sizes).copy()
    ops.close()
    # The first rows see only rows of their own adapter; the later ones see keys that it has changed.
    assert np.array_equal(together[:3], alone[1][:3]) and not np.array_equal(together[3:], alone[-1][3:])


def test_without_adapters_the_program_is_what_it_was() -> None:
    program = read_model(FAMILIES["llama3-grouped"]().to_dict()).plain
    made = with_adapters(program, AdapterSpec(0, 8, ("q_proj",)))
    assert made.program is program and made.products == ()


def test_whole_names_and_last_words_choose_linears() -> None:
    program = read_model(FAMILIES["llama3-grouped"]().to_dict()).plain
    one = with_adapters(program, AdapterSpec(1, 4, ("model.layers.1.self_attn.k_proj",)))
    ((part,),) = (product.parts for product in one.products)
    assert (part.first_row, part.rows, part.first_rank) == (64, 32, 0)
    both = with_adapters(program, AdapterSpec(1, 4, ("v_proj", "q_proj")))
    assert [product.down.rows for product in both.products] == [8, 8, 8]
    assert [[part.first_rank for part in product.parts] for product in both.products] == [[0, 4]] * 3


@pytest.mark.parametrize("name", ["w_pack", "embed_tokens", "model.layers.9.mlp.down_proj"])
def test_a_module_that_is_no_product_is_refused(name: str) -> None:
    program = read_model(FAMILIES["llama3-grouped"]().to_dict()).plain
    with pytest.raises(ConfigError, match=name) as error:
        with_adapters(program, AdapterSpec(1, 4, ("q_proj", name)))
    assert "down_proj" in error.value.why


@pytest.mark.parametrize("architecture", by_architecture())
def test_every_architecture_takes_adapters_on_all_its_linears(architecture: str) -> None:
    model = read_model(FAMILIES[by_architecture()[architecture][0]]().to_dict())
    linears = [call.weight for call in model.plain.calls if isinstance(call, Linear)]
    modules = tuple({part.name.removesuffix(".weight") for weight in linears for part in weight.parts})
    made = with_adapters(model.plain, AdapterSpec(2, 4, modules))
    check(fuse(made.program, PATTERNS))
    assert {product.weight for product in made.products} == set(linears)
