"""Fixtures that the tests of ops on the emulated device share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cuda.emulator.fake import built_folder, controls, device, fake_driver, same_level
from tests.tiers import TIER
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cuda import library
from twostroke.backends.cuda.device import CudaDevice

OF_PROCESS = 1 << 30
"""The bytes of the device that `fake` gives."""
SEEDS = (1 + TIER.seed % 2,) if TIER.quick else (1, 2)
"""Seeds of the orders in which threads and blocks run. An even seed also gives a device with one multiprocessor."""


@pytest.fixture(scope="module")
def cpu() -> Iterator[CpuOps]:
    """The level that has the bits of the kernels."""
    level = same_level()
    if level is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    ops = CpuOps(level, 1)
    yield ops
    ops.close()


@pytest.fixture(scope="module", params=SEEDS)
def gpu(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    """A device for each seed."""
    made = device(request.param)
    yield made
    made.close()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives this process one device, which `--device cuda` finds."""
    controls().fake_reset(11, OF_PROCESS, 1)
    monkeypatch.setattr(library, "DRIVER", str(fake_driver()))
    monkeypatch.setattr(library, "LIBRARY_FOLDER", built_folder())
