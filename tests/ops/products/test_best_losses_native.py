"""best_losses and add_losses at every level: a row's largest logits become those of exact inputs, and no other changes.
The numbers are the same whatever NaN or equal logits a row has, and ranks together find what one process finds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.ops.native import LEVELS, check_guard, format_id, guarded, random_rows, random_weight
from tests.ops.products.test_stored_native import packed
from twostroke.backends.cpu.ops import CpuOps
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import best_losses
from twostroke.ops.quant.formats import INT4, INT6, INT8
from twostroke.ops.unpack import unpack
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import F32, STORED_GROUP, WeightFormat, WeightKind

STORED = [WeightFormat(kind, STORED_GROUP) for kind in WeightKind if kind.is_stored and kind is not WeightKind.SUPER6]
FORMATS = [INT8, INT4, INT6, WeightFormat(WeightKind.INT8, 64), *STORED]
COUNT = 20


@pytest.fixture(params=LEVELS, scope="module")
def pools(request: pytest.FixtureRequest) -> Iterator[tuple[CpuOps, CpuOps]]:
    """The ops with one thread, and with three."""
    both = CpuOps(str(request.param), 1), CpuOps(str(request.param), 3)
    yield both
    for ops in both:
        ops.close()


def weight_of(rows: int, columns: int, weight_format: WeightFormat) -> PackedWeight:
    if weight_format in STORED:
        return packed(weight_format.kind, rows, columns)
    return random_weight(rows, columns, weight_format, rows % 2 == 1)


def found(ops: CpuOps, logits: F32Array, x: F32Array, weight: PackedWeight, first: int = 0) -> F32Array:
    out, room = guarded(len(x), 2 * COUNT)
    ops.best_losses(out, logits, x, weight, first)
    check_guard(out, room)
    return out.copy()


@pytest.mark.parametrize("weight_format", FORMATS, ids=format_id)
def test_the_largest_logits_are_those_of_exact_inputs(
    pools: tuple[CpuOps, CpuOps], weight_format: WeightFormat
) -> None:
    weight, x = weight_of(201, 512, weight_format), random_rows(6, 512)
    logits = np.empty((6, 201), np.float32)
    pools[0].linear(logits, x, weight, None)
    losses = found(pools[0], logits, x, weight)
    assert losses.tobytes() == found(pools[1], logits, x, weight).tobytes()
    for row in range(6):  # alone, it has the bits that it has among others
        assert (
            losses[row : row + 1].tobytes()
            == found(pools[1], logits[row : row + 1], x[row : row + 1], weight).tobytes()
        )
    after = logits.copy()
    pools[0].add_losses(after, losses, COUNT)
    exact = x.astype(np.float64) @ unpack(weight).astype(np.float64).T
    exact += 0 if weight.bias is None else weight.bias
    best = np.argsort(-logits, axis=1)[:, :COUNT]
    assert np.array_equal(losses[:, COUNT:], best)
    scale = float(np.abs(exact).max())
    off = [np.take_along_axis(np.abs(each - exact), best, axis=1).max() / scale for each in (logits, after)]
    assert off[1] < 2e-5 < 1e-4 < off[0]
    np.put_along_axis(after, best, np.take_along_axis(logits, best, axis=1), axis=1)
    assert after.tobytes() == logits.tobytes()


def test_ranks_find_what_one_process_finds(pools: tuple[CpuOps, CpuOps]) -> None:
    x, logits = random_rows(3, 300), random_rows(3, 256)
    whole = random_weight(256, 300, INT8, False)
    values = unpack(whole)
    split = whole.format.data_bytes(128, 300)
    scales = whole.format.scale_bytes(128, 300) // 2
    assert whole.scales is not None
    halves = [
        PackedWeight(whole.format, 128, 300, whole.data[begin : begin + split], whole.scales[at : at + scales])
        for begin, at in ((0, 0), (split, scales))
    ]
    assert all(np.array_equal(unpack(half), values[at : at + 128]) for half, at in zip(halves, (0, 128), strict=True))
    own = [found(pools[0], logits, x, half, first) for half, first in zip(halves, (0, 128), strict=True)]
    alone, together = logits.copy(), logits.copy()
    pools[0].add_losses(alone, found(pools[0], logits, x, whole), COUNT)
    pools[1].add_losses(together, np.concatenate(own, axis=1), COUNT)
    assert alone.tobytes() == together.tobytes() != logits.tobytes()


def test_nan_equal_and_signed_zeros_have_one_order(pools: tuple[CpuOps, CpuOps]) -> None:
    x, weight = random_rows(5, 64), random_weight(150, 64, INT8, False)
    logits = random_rows(5, 150).copy()
    logits[1, 3::7] = np.nan
    logits[2] = 1.5
    logits[3] = np.where(np.arange(150) % 2, np.float32(-0.0), np.float32(0.0))
    logits[4, 50:] = -np.inf
    losses, law = found(pools[1], logits, x, weight), np.empty((5, 2 * COUNT), np.float32)
    best_losses.reference(law, logits, x, weight)
    assert np.array_equal(losses[:, COUNT:], law[:, COUNT:])
    assert list(losses[2, COUNT:]) == list(losses[3, COUNT:]) == list(range(COUNT))
    scale = float(np.abs(law[:, :COUNT]).max())
    np.testing.assert_allclose(losses[:, :COUNT], law[:, :COUNT], atol=1e-5 * scale)


def test_floats_lose_nothing(pools: tuple[CpuOps, CpuOps]) -> None:
    assert not found(pools[0], random_rows(2, 70), random_rows(2, 64), random_weight(70, 64, F32, True)).any()


def test_numbers_outside_the_row_are_refused(pools: tuple[CpuOps, CpuOps]) -> None:
    logits = random_rows(1, 8).copy()
    before = logits.copy()
    for number in (-1.0, 8.0, np.nan):
        with pytest.raises(BackendError):
            pools[0].add_losses(logits, np.array([[0.5, number]], np.float32), 1)
    assert np.array_equal(logits, before)
