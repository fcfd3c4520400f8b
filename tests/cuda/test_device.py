"""The loader: errors tell what is missing or has failed, memory is given back, and device arrays cannot be accessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cuda.emulator.fake import built_folder, controls, device, fake_driver
from tests.cuda.ops.operands import run_on
from twostroke.backends.cuda import library
from twostroke.backends.cuda.arrays import DeviceArray
from twostroke.backends.cuda.device import CudaDevice
from twostroke.backends.cuda.health import check_device
from twostroke.ops.registry import registry
from twostroke.ops.rows.pointwise import PointStep, program_of
from twostroke.types.errors import BackendError, OutOfMemory


@pytest.fixture
def gpu() -> Iterator[CudaDevice]:
    made = device(memory_bytes=64 << 20)
    yield made
    made.close()


def test_every_op_has_kernels_unless_its_class_declares_that_it_has_none() -> None:
    """Ops by which several processes share a program have none, because a device runs whole programs."""
    without = {name for name, op in registry().items() if not op.ON_DEVICES}
    assert registry().keys() - library.cuda_op_numbers(built_folder()).keys() == without >= {"gather", "receive"}


def test_arrays_go_there_and_back(gpu: CudaDevice) -> None:
    for array in (np.arange(7, dtype=np.int32), np.eye(3, dtype=np.float32), np.zeros((0, 4), np.float32)):
        there = gpu.put(array)
        assert there.shape == array.shape and there.dtype == array.dtype and there.ctypes.data % 64 == 0
        np.testing.assert_array_equal(gpu.get(there), array)
    assert not gpu.get(gpu.zeros(1000)).any()
    check_device(gpu)


def test_what_needs_the_numbers_is_refused(gpu: CudaDevice) -> None:
    there = gpu.put(np.arange(24, dtype=np.float32).reshape(4, 6))
    assert isinstance(there, DeviceArray) and not isinstance(there, np.ndarray)
    for touch in (
        lambda: there[0, 0],
        lambda: there[0],
        lambda: list(there),
        lambda: np.asarray(there),
        lambda: np.array(there),
        lambda: there.__setitem__(slice(0, 1), 3.0),
    ):
        with pytest.raises(BackendError, match="cannot be read or written"):
            touch()
    for operate in (lambda: there + 1, lambda: np.add(there, 1.0), lambda: -there):
        with pytest.raises(TypeError):
            operate()
    assert "at 0x" in repr(there)
    for name in ("sum", "copy", "tolist", "tobytes", "item", "fill", "data"):
        assert not hasattr(there, name)


def test_views_are_where_numpy_has_them(gpu: CudaDevice) -> None:
    host = np.arange(4 * 12, dtype=np.float32).reshape(4, 12)
    there = gpu.put(host)
    for make in (
        lambda a: a[1:3],
        lambda a: a[:, 2:8],
        lambda a: a[:, 2:8].reshape(4, 2, 3),
        lambda a: a[:2].reshape(-1),
        lambda a: a.view(np.uint8)[:1].reshape(3, -1),
    ):
        view, own = make(there), make(host)
        assert (view.shape, view.strides, view.dtype) == (own.shape, own.strides, own.dtype)
        assert view.ctypes.data - there.ctypes.data == own.ctypes.data - host.ctypes.data
    with pytest.raises(BackendError):
        there[:, 2:8].reshape(-1)


def test_a_row_is_copied_on_the_device(gpu: CudaDevice) -> None:
    host = np.arange(12, dtype=np.uint16).reshape(4, 3)
    there = gpu.put(host)
    gpu.copy_row(there, 3, 1)
    gpu.copy_row(there, 2, 2)
    np.testing.assert_array_equal(gpu.get(there), host[[0, 3, 2, 3]])
    for source, target in ((4, 0), (0, -1)):
        with pytest.raises(BackendError, match="is not among the 4"):
            gpu.copy_row(there, source, target)


@pytest.mark.parametrize(("seed", "clock_hz", "pins"), [(1, 1.98e9, 4.917e12), (2, 0.0, 0.0)])
def test_what_a_driver_does_not_tell_is_zero(seed: int, clock_hz: float, pins: float) -> None:
    gpu = device(seed=seed)
    assert gpu.facts.clock_hz == clock_hz and abs(gpu.facts.memory_bytes_per_s - pins) < 1e9
    gpu.close()


def test_memory_is_planned_and_given_back() -> None:
    gpu = device(memory_bytes=4 << 20)
    before = controls().fake_used()
    assert gpu.facts.free_bytes == (4 << 20) - before
    gpu.put(np.zeros(1000, np.float32))
    with pytest.raises(OutOfMemory, match="no memory left for 8.0 MB") as caught:
        gpu.empty(8_000_000)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in caught.value.why and "are free" in caught.value.why
    gpu.inputs(4096)
    assert controls().fake_used() > before
    gpu.close()
    gpu.close()
    assert controls().fake_used() == 0


def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="There is no CUDA driver here") as caught:
        CudaDevice(0, str(tmp_path / "libcuda.so.1"), built_folder())
    assert "libcuda.so.1" in caught.value.why and "--device cpu" in caught.value.fix


def test_an_old_driver_is_named(tmp_path: Path) -> None:
    path = built_folder() / library.LIBRARY_NAME  # a library without the driver's functions
    with pytest.raises(BackendError, match="driver here is too old") as caught:
        CudaDevice(0, str(path), built_folder())
    assert "cuInit" in caught.value.why and "newer driver" in caught.value.fix


def test_devices_that_are_not_there() -> None:
    for ordinal, devices in ((0, 0), (1, 1), (7, 2)):
        with pytest.raises(BackendError, match=f"CUDA device {ordinal} cannot be used") as caught:
            device(devices=devices, ordinal=ordinal)
        assert f"the driver has {devices}" in caught.value.why
    device(devices=2, ordinal=1).close()


def test_a_package_without_the_backend_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="not compiled") as caught:
        CudaDevice(0, str(fake_driver()), tmp_path)
    assert library.LIBRARY_NAME in caught.value.why and "build.py" in caught.value.fix


def test_a_launch_that_fails_is_named(gpu: CudaDevice) -> None:
    x = np.ones((2, 8), np.float32)
    controls().fake_fail(b"cuLaunchKernel", 0)
    with pytest.raises(BackendError, match="pointwise was refused .*: cuLaunchKernel of pointwise: CUDA_ERROR"):
        run_on(gpu, "pointwise", x, program_of(PointStep.PLUS_Y), None, x)
    controls().fake_reset(1, 64 << 20, 1)
    np.testing.assert_array_equal(run_on(gpu, "pointwise", x, program_of(PointStep.PLUS_Y), None, x), 2 * x)


def test_wrong_indices_are_refused_before_anything_runs(gpu: CudaDevice) -> None:
    x, launches = np.ones((2, 8), np.float32), controls().fake_launches()
    for rows in ([0, 2], [-1, 0]):
        with pytest.raises(BackendError, match="gather_rows was refused by the cuda backend: an index"):
            run_on(gpu, "gather_rows", np.zeros((2, 8), np.float32), x, np.array(rows, np.int32))
    assert controls().fake_launches() == launches


def test_a_second_context_of_one_process_has_its_own_memory(gpu: CudaDevice) -> None:
    other = CudaDevice(0, str(fake_driver()), built_folder())
    ours, theirs = gpu.put(np.ones(4, np.float32)), other.put(np.zeros(4, np.float32))
    other.close()
    np.testing.assert_array_equal(gpu.get(ours), np.ones(4, np.float32))
    assert theirs.nbytes == 16
