"""The level `avxvnni` with its instruction emulated (tests/native/emulated/vnni.py): the bits are those of the level
`avx2`.

It runs linear with integers and stored codes, and attention over integers. Where this CPU has the instruction, it also
runs with the instruction itself. Where that level is the best of the CPU, the whole grids run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.native.emulated import vnni
from tests.ops.attention import test_attention_native as attention
from tests.ops.native import INTEGER_FORMATS, batch_of, format_id, random_rows, random_weight
from tests.ops.native import linear as product
from tests.ops.products import test_linear_native as linear
from tests.ops.products import test_stored_native as stored
from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.ops.operands import PackedWeight
from twostroke.types.spec.formats import KVKind, WeightFormat, WeightKind

ROWS = (1, 2, 3, 4, 5, 9, 16, 17, 40)
"""From 17 rows on, int4 is unpacked once for all."""
integer_formats = pytest.mark.parametrize("weight_format", INTEGER_FORMATS, ids=format_id)


REAL = [vnni.LEVEL.level] if vnni.LEVEL.level in available_levels() else []


@pytest.fixture(scope="module", params=[vnni.LEVEL.name, *REAL])
def one_thread(request: pytest.FixtureRequest) -> Iterator[CpuOps]:
    ops = CpuOps(request.param if request.param in REAL else vnni.load(), 1)
    yield ops
    ops.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[CpuOps]:
    ops = CpuOps("avx2", 1)
    yield ops
    ops.close()


def same_bits(one_thread: CpuOps, plain: CpuOps, weight: PackedWeight) -> None:
    for rows in ROWS:
        x = random_rows(rows, weight.columns)
        np.testing.assert_array_equal(product(one_thread, x, weight), product(plain, x, weight))


@integer_formats
@pytest.mark.parametrize(("rows", "columns"), [(65, 64), (200, 300), (64, 600)])
def test_integers(weight_format: WeightFormat, rows: int, columns: int, one_thread: CpuOps, plain: CpuOps) -> None:
    same_bits(one_thread, plain, random_weight(rows, columns, weight_format, with_bias=True))


@pytest.mark.parametrize(("kind", "columns"), list(stored.shapes()))
def test_stored_codes(kind: WeightKind, columns: int, one_thread: CpuOps, plain: CpuOps) -> None:
    same_bits(one_thread, plain, stored.packed(kind, 130, columns))


@integer_formats
@pytest.mark.parametrize(("sign", "end", "rows"), itertools.product((1, -1), (0, 1), (3, 40)))
def test_extreme_integers_are_exact(
    weight_format: WeightFormat, sign: int, end: int, rows: int, one_thread: CpuOps
) -> None:
    linear.test_extreme_integers_are_exact(weight_format, sign, end, rows, one_thread)


@integer_formats
@pytest.mark.parametrize("rows", [4, 17])
def test_every_weight_value_is_multiplied_exactly(weight_format: WeightFormat, rows: int, one_thread: CpuOps) -> None:
    linear.test_every_weight_value_is_multiplied_exactly(weight_format, rows, one_thread)


@pytest.mark.parametrize("kind", stored.KINDS)
def test_the_largest_codes_by_the_largest_activations(kind: WeightKind, one_thread: CpuOps) -> None:
    stored.test_the_largest_codes_by_the_largest_activations(kind, one_thread)


@pytest.mark.parametrize(("kind", "dim"), itertools.product((KVKind.INT8, KVKind.INT4), (64, 128)))
def test_attention(kind: KVKind, dim: int, one_thread: CpuOps, plain: CpuOps) -> None:
    attention.test_attention(one_thread, kind, (2, 3), dim, 0)
    found = [attention_bits(ops, kind, dim) for ops in (one_thread, plain)]
    np.testing.assert_array_equal(*found)


def attention_bits(ops: CpuOps, kind: KVKind, dim: int) -> np.ndarray:
    contexts, counts = (1, 40, 150, 259), (1, 1, 70, 19)
    layer, table = attention.filled_layer(kind, 2, dim, contexts)
    batch = batch_of(contexts, counts, table)
    q = attention.queries(sum(counts), 6, 2, dim, 99)
    out = np.empty(q.shape, np.float32)
    ops.attention(out, q, layer, batch, 0.125, 0)
    return out
