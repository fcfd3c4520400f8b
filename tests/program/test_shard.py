"""shard: all ranks together give the bits of the whole program, and each has only its share of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.random_checkpoint import write_random
from tests.models.families.covering import covering_architectures
from tests.models.families.stored import by_architecture, config_of
from tests.program.ranks import Exchange, RankOps, together
from tests.runner.memories import memory_of
from tests.tiers import rest_daily
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.attention import Attention
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.passes.scaled_keys import scalable_caches, with_scaled_keys
from twostroke.ops.passes.shard import Gather, shard
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.op import FormatChoice, StoredFormats
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import POSITIONS, PagedKV, Vector, VectorForm
from twostroke.ops.quant.formats import INT8, format_choice
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes
from twostroke.runner.forward import OpByOp
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import KVKind, WeightFormat
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.tensors import wanted_tensors

SIZES = MemorySizes(4, 64, 32, 32, state_slots=2)
TOKENS = (5, 9, 31, 2, 77, 60, 8, 8, 14, 3, 90, 21, 17, 40, 1, 66, 50, 7, 11, 12)
CHUNKS = (11, 1, 8)


def with_heads(family: str, heads: int, kv_heads: int) -> dict[str, Any]:
    """The family's tiny config with `heads` heads, so that ranks have something to divide."""
    config = config_of(family)
    names = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    return {**config, **({"n_head": heads} if "n_head" in config else names)}


CONFIGS = {
    "llama": with_heads("llama-biases", 8, 4),
    "llama-tied": with_heads("llama-tied", 4, 4),
    "qwen3": with_heads("qwen3-head-norms", 8, 4),
    "mixtral": with_heads("mixtral-window", 8, 4),
    "qwen3-moe": with_heads("qwen3-moe-dense-layers", 4, 4),
    "gpt2": with_heads("gpt2", 4, 4),
    "gpt2-untied": with_heads("gpt2-untied", 4, 4),
}
FIRST = {name: config_of(families[0]) for name, families in by_architecture().items()}
"""The first config of every architecture, changed only where two ranks cannot divide its heads."""
FIRST["JetMoeForCausalLM"] |= {"num_key_value_heads": 2, "num_attention_heads": 4}
for layer in FIRST["DeciLMForCausalLM"]["block_configs"]:
    if layer["attention"]["n_heads_in_group"] == 4:
        layer["attention"]["n_heads_in_group"] = 2
CONFIGS |= FIRST
TRIED = [name for name in CONFIGS if name not in FIRST]


@pytest.fixture(scope="module")
def native() -> Iterator[CpuOps]:
    ops = CpuOps(None, 1)
    yield ops
    ops.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def folder(name: str) -> Path:
        made: Path = tmp_path_factory.mktemp(name)
        return write_random(CONFIGS[name], made)

    return folder


def all_int8(role: str) -> WeightFormat:
    """The sums are of whole numbers, so no library of matrix products can change them by another order."""
    return INT8


def run(
    name: str,
    folders: Any,
    ranks: int,
    format_for: FormatChoice,
    backends: list[Any],
    fused: bool,
    kv: KVKind = KVKind.BF16,
) -> list[np.ndarray]:
    """The logits that each rank computes. Where K and V are rounded to integers, keys have factors."""
    whole = read_model(CONFIGS[name])
    if kv.is_integer:
        whole = replace(whole, plain=with_scaled_keys(whole.plain, factors_of(whole.plain)))
    exchange, forwards, memories = Exchange(ranks), [], []
    for rank, ops in enumerate(backends):
        program = shard(whole.plain, rank, ranks)
        program = fuse(program, PATTERNS) if fused else program
        check(program)
        # A rank need not read every tensor of the checkpoint.
        names = tuple(tensor.name for tensor in wanted_tensors(whole))
        model = replace(whole, plain=program, program=program, ignored=names)
        with Checkpoint.open(folders(name)) as checkpoint:
            loaded = load_weights(checkpoint, model, format_for, NumpyPacker())
        memories.append(memory_of(model, loaded, kv, SIZES))
        forwards.append(OpByOp(program, RankOps(ops, exchange, rank), memories[-1]))
    return together(forwards, memories, TOKENS, (len(TOKENS),) if whole.whole_prompts else CHUNKS)


def factors_of(program: Program) -> dict[int, tuple[float, ...]]:
    """Factors that differ in every head of each cache."""
    rng = np.random.default_rng(3)
    return {
        index: tuple(2.0 ** rng.integers(-3, 4, kind.kv_heads * kind.head_dim))
        for index, kind in scalable_caches(program).items()
    }


@pytest.mark.parametrize("kv", [KVKind.INT8, KVKind.INT4])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_each_rank_scales_the_keys_of_its_own_heads(name: str, kv: KVKind, folders: Any, native: CpuOps) -> None:
    (expected,) = run(name, folders, 1, all_int8, [native], True, kv)
    backends = [CpuOps(None, 1) for _ in range(2)]
    for found in run(name, folders, 2, all_int8, backends, True, kv):
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
    for ops in backends:
        ops.close()
    whole = read_model(CONFIGS[name]).plain
    factors = factors_of(whole)
    for part in (shard(with_scaled_keys(whole, factors), rank, 2) for rank in range(2)):
        own = [cache.kind.kv_heads for cache in part.caches if isinstance(cache.kind, PagedKV)]
        assert own == [kind.kv_heads // 2 for kind in whole.paged()] and gathers(part) == gathers(shard(whole, 0, 2))


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", TRIED)
def test_all_ranks_of_the_reference_find_the_bits_of_the_whole(name: str, ranks: int, folders: Any) -> None:
    (expected,) = run(name, folders, 1, all_int8, [ReferenceOps()], fused=False)
    assert np.isfinite(expected).all() and expected.std() > 0.05
    for found in run(name, folders, ranks, all_int8, [ReferenceOps()] * ranks, fused=False):
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("weights", ["f32", "bf16", "int6", "int4", "int5"])
@pytest.mark.parametrize("name", TRIED)
def test_native_kernels_find_them_too(name: str, weights: str, folders: Any, native: CpuOps) -> None:
    """The programs are fused, and each rank's backend has one thread. The whole program is fused as well."""
    (expected,) = run(name, folders, 1, format_choice(weights), [native], fused=True)
    backends = [CpuOps(None, 1) for _ in range(2)]
    for found in run(name, folders, 2, format_choice(weights), backends, fused=True):
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
    for ops in backends:
        ops.close()


def test_gathers_before_products_alone_name_the_matrix_that_rounds_them() -> None:
    model = read_model(CONFIGS["llama"])
    for rank in (0, 1):
        calls = shard(model.plain, rank, 2).calls
        found = [call for call in calls if isinstance(call, Gather) and call.reader is not None]
        assert len(found) == 2 * model.num_layers  # what attention gave, and the activated columns; never the residual
        for call in found:
            (reader,) = [other for other in calls if call.out.root in [value.root for value in other.reads()]]
            assert reader.weight is call.reader and call.first == rank * call.part.width  # type: ignore[attr-defined]
            assert reader.positions is call.positions is POSITIONS  # type: ignore[attr-defined]


def gathers(program: Any) -> int:
    return sum(isinstance(call, Gather) for call in program.calls)


def test_a_layer_gathers_four_times_and_the_head_twice() -> None:
    """CLUSTER: the results of attention, of o, of the gate and of down; then the logits and their losses."""
    model = read_model(CONFIGS["llama"])
    assert gathers(shard(model.plain, 1, 2)) == 4 * model.num_layers + 2
    assert shard(model.plain, 0, 1) is model.plain


def shared_of(program: Program) -> set[Vector]:
    """The vectors of heads, of which each rank has its own."""
    return {vector for vector in program.vectors if vector.form is VectorForm.SHARED_BIAS}


def test_a_rank_has_the_shared_bias_of_its_own_heads() -> None:
    """The ranks' parts of each layer's bias are all of it, in order. Its means are the same on every rank."""
    model = read_model(CONFIGS["llama"])
    whole, ranks = shared_of(model.plain), [shared_of(shard(model.plain, rank, 4)) for rank in range(4)]
    assert len(whole) == model.num_layers
    for vector in whole:
        (name,) = {part.name for part in vector.parts}
        met = [own for each in ranks for own in each if own.parts[0].name == name]
        assert [part.rows for own in met for part in own.parts] == [
            (rank * own.length, (rank + 1) * own.length) for rank, own in enumerate(met)
        ]
        assert sum(own.length for own in met) == vector.length and {own.numbers for own in met} == {vector.numbers}


def test_a_rank_has_its_share_of_matrices_heads_and_work() -> None:
    model, formats = read_model(CONFIGS["llama"]), StoredFormats(format_choice("int8"), KVKind.BF16)
    whole, parts = model.plain, [shard(model.plain, rank, 4) for rank in range(4)]
    table = model.vocab_size * model.hidden_size
    matrices = sum(weight.elements for weight in whole.weights) - table
    assert sum(weight.elements for part in parts for weight in part.weights) - 4 * table == matrices
    for part in parts:
        assert [kind.kv_heads for kind in part.paged()] == [1] * model.num_layers
        assert {call.q.shape[0] for call in part.calls if isinstance(call, Attention)} == {2}
        assert {vector for vector in part.vectors if vector not in whole.vectors} == shared_of(part)
        flops = sum(call.cost(formats).per_row.flops for call in part.calls)
        assert flops < 0.3 * sum(call.cost(formats).per_row.flops for call in whole.calls)


def test_every_row_of_a_tensor_is_one_ranks() -> None:
    model = read_model(CONFIGS["gpt2"])
    parts = [weight for rank in range(4) for weight in shard(model.plain, rank, 4).weights]
    tables = {"transformer.wte.weight", "transformer.wpe.weight"}
    for name in {part.name for weight in parts for part in weight.parts} - tables:
        met = [part for weight in parts for part in weight.parts if part.name == name]
        rows = sorted(row for part in met for row in range(*(part.rows or (0, part.length))))
        assert rows == list(range(met[0].shape[1 if met[0].transposed else 0])), name


@pytest.mark.parametrize(("name", "ranks", "words"), [("llama", 3, "1 or 2 or 4"), ("llama", 8, "1 or 2 or 4")])
def test_counts_that_do_not_divide_the_heads_are_refused(name: str, ranks: int, words: str) -> None:
    with pytest.raises(ConfigError, match=f"among {ranks} ranks") as error:
        shard(read_model(CONFIGS[name]).plain, 0, ranks)
    assert "4, 8" in error.value.why and words in error.value.fix


@pytest.mark.parametrize("architecture", rest_daily(FIRST, covering_architectures()))
def test_two_ranks_of_every_architecture_find_the_bits_of_the_whole(architecture: str, folders: Any) -> None:
    """Ops that cannot be divided are computed whole by every rank."""
    model = read_model(CONFIGS[architecture])
    for rank in range(2):
        program = shard(model.plain, rank, 2)
        check(fuse(program, PATTERNS))
        assert gathers(program) and program.logits.width == model.program.logits.width
    (expected,) = run(architecture, folders, 1, all_int8, [ReferenceOps()], fused=False)
    for found in run(architecture, folders, 2, all_int8, [ReferenceOps()] * 2, fused=False):
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
