"""Products with the rows of prompts, on devices that have products of warpgroups: bit for bit as on the CPU and as on
devices without them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from tests.cuda.emulator.fake import built_folder, controls, fake_driver
from tests.cuda.ops.operands import changed_on
from tests.cuda.ops.same_bits import same_bits
from tests.ops.native import random_rows, random_weight
from tests.tiers import thinned
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda import images
from twostroke.backends.cuda.device import CudaDevice
from twostroke.types.spec.formats import WeightFormat, WeightKind

KINDS = (WeightKind.INT8, WeightKind.INT4)
FORMATS = [WeightFormat(kind, group, rotated) for kind in KINDS for group in (128, 256) for rotated in (0, 64)]
SHAPES = [(65, 200, 129), (1, 64, 257), (130, 1100, 200), (200, 300, 450), (128, 128, 130)]
"""Rows, columns and rows of activations: whole parts of 64 and one more, odd numbers of panels, a last group of 64
columns. On a device with one multiprocessor tiles are wide."""


@pytest.fixture(scope="module", autouse=True)
def warpgroups() -> Iterator[None]:
    """Lets products of warpgroups run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "HOPPER_HAS", images.WAITS | images.WARPGROUPS)
        yield


@pytest.mark.parametrize(("shape", "weight_format"), thinned(list(product(SHAPES, FORMATS)), "tiles of prompts", 8))
def test_tiles_of_prompts(
    cpu: CpuOps, gpu: CudaDevice, shape: tuple[int, int, int], weight_format: WeightFormat
) -> None:
    rows, columns, count = shape
    weight, x = random_weight(rows, columns, weight_format, rows % 2 == 0), np.array(random_rows(count, columns))
    x[1], x[2], x[3, -1], x[4] = 1e-39, 127.0, 3e38, 0.0
    same_bits(cpu, gpu, "linear", (np.zeros((count, rows), np.float32), x, weight), tolerance=None)
    out = np.ascontiguousarray(random_rows(count, rows))
    same_bits(cpu, gpu, "linear_add", (out, np.ascontiguousarray(random_rows(count, columns)), weight), tolerance=2e-4)


@pytest.mark.parametrize("weight_format", FORMATS[::2])
@pytest.mark.parametrize(("rows", "count"), [(256, 130), (128, 300), (160, 140)])
def test_prompts_that_the_product_gates(
    cpu: CpuOps, gpu: CudaDevice, rows: int, count: int, weight_format: WeightFormat
) -> None:
    """Both halves of the first matrices are whole panels; those of the last one are not."""
    weight, x = random_weight(rows, 200, weight_format, count == 130), np.ascontiguousarray(random_rows(count, 200))
    same_bits(cpu, gpu, "linear_silu", (np.zeros((count, rows // 2), np.float32), x, weight), tolerance=2e-4)


@pytest.mark.parametrize("weight_format", FORMATS[::2])
def test_both_kernels_give_the_same(weight_format: WeightFormat) -> None:
    """The image of every chip has no products of warpgroups."""
    weight, x = random_weight(150, 700, weight_format, True), np.ascontiguousarray(random_rows(140, 700))
    found = []
    for major, target in ((9, "sm_90a"), (8, "sm_80")):
        controls().fake_reset(3, 1 << 30, 1)
        controls().fake_describe(major, 0, 13000)
        device = CudaDevice(0, str(fake_driver()), built_folder())
        assert controls().fake_target().decode() == target
        found.append(changed_on(device, "linear", (np.zeros((140, 150), np.float32), x, weight), (0,))[0])
        device.close()
    assert found[0].tobytes() == found[1].tobytes()
