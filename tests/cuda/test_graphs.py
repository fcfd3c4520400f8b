"""Launches that come again run as a graph, with the same numbers and fewer calls. They run one by one where there is no
graph."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cuda.emulator.fake import built_folder, controls, device, fake_driver
from tests.cuda.ops.operands import run_on
from tests.ops.test_recorded import packed
from twostroke.backends.cpu.recorded import Calls
from twostroke.backends.cuda.device import CudaDevice
from twostroke.backends.cuda.health import check_device
from twostroke.llm import LLM
from twostroke.ops.rows.pointwise import PointStep, Pointwise, program_of
from twostroke.types.errors import BackendError
from twostroke.types.sampling.sampling_params import SamplingParams

MEMORY_BYTES = 64 << 20
SMALL = {"context": "128", "max_step_tokens": "64", "max_sequences": "4", "kv_memory": "2MB"}


@pytest.fixture
def gpu() -> Iterator[CudaDevice]:
    made = device(memory_bytes=MEMORY_BYTES)
    yield made
    made.close()
    assert controls().fake_graphs_held() == 0


def counted(name: str) -> int:
    return int(getattr(controls(), f"fake_{name}")())


def doubling(gpu: CudaDevice, *arrays: NDArray[Any]) -> Calls:
    """Calls that double each of these values, one after the other."""
    recorder = gpu.recorder()
    for array in arrays:
        recorder.record(Pointwise, (array, program_of(PointStep.PLUS_Y), None, array))
    return recorder.calls()


def ones(gpu: CudaDevice, count: int, rows: int = 2) -> list[NDArray[Any]]:
    return [gpu.put(np.ones((rows, 8), np.float32)) for _ in range(count)]


def values(gpu: CudaDevice, arrays: list[NDArray[Any]]) -> list[float]:
    return [float(gpu.get(each)[0, 0]) for each in arrays]


def test_launches_that_come_again_are_a_graph(gpu: CudaDevice) -> None:
    arrays = ones(gpu, 4)
    calls = doubling(gpu, *arrays)
    for _ in range(5):
        gpu.run(calls)
    assert values(gpu, arrays) == [32.0] * 4
    assert (counted("graphs_made"), counted("graph_launches"), counted("launches")) == (1, 4, 20)


def test_few_launches_that_differ_are_changed_in_a_graph(gpu: CudaDevice) -> None:
    arrays = ones(gpu, 5)
    first, second = doubling(gpu, *arrays[:4]), doubling(gpu, arrays[4], *arrays[1:4])
    for calls in (first, first, second, first, second, second):
        gpu.run(calls)
    assert values(gpu, arrays) == [8.0, 64.0, 64.0, 64.0, 8.0]
    assert (counted("graphs_made"), counted("graph_launches"), counted("nodes_changed")) == (1, 5, 3)


def test_two_launches_and_one_that_is_not_seen_again_stay_launches(gpu: CudaDevice) -> None:
    arrays = ones(gpu, 2)
    for _ in range(3):
        gpu.run(doubling(gpu, *arrays))
    for rows in range(1, 5):
        gpu.run(doubling(gpu, *ones(gpu, 6, rows)))
    assert counted("graphs_made") == 0 and values(gpu, arrays) == [8.0, 8.0]


@pytest.mark.parametrize(
    ("facts", "target", "early"),
    [((9, 0, 13000), "sm_90a", 3), ((9, 0, 11080), "sm_80", 0), ((10, 0, 13000), "sm_80", 0)],
)
def test_kernels_begin_early_where_they_wait_by_themselves(
    facts: tuple[int, int, int], target: str, early: int
) -> None:
    controls().fake_reset(1, MEMORY_BYTES, 1)
    controls().fake_describe(*facts)
    gpu = CudaDevice(0, str(fake_driver()), built_folder())
    calls = doubling(gpu, *ones(gpu, 4))
    gpu.run(calls)
    gpu.run(calls)
    assert controls().fake_target().decode() == target and gpu.image_name == f"kernels_{target}.ptx"
    assert counted("early_edges") == early
    gpu.close()


def test_kernels_of_its_own_that_the_driver_refuses_are_those_of_every_device() -> None:
    controls().fake_reset(1, MEMORY_BYTES, 1)
    for call in (b"cuModuleLoadData", b"cuModuleGetFunction"):
        controls().fake_fail(call, 0)
        gpu = CudaDevice(0, str(fake_driver()), built_folder())
        assert gpu.image_name == "kernels_sm_80.ptx"
        check_device(gpu)
        gpu.close()


def test_machine_code_is_taken_where_it_is_for_the_chip(tmp_path: Path) -> None:
    """The driver then need not compile anything."""
    for chip in ("sm_80", "sm_86", "sm_90a"):
        (tmp_path / f"kernels_{chip}.cubin").write_bytes(b"\x7fELF")
    for path in built_folder().iterdir():
        (tmp_path / path.name).symlink_to(path)
    for capability, call, name in (
        ((9, 0), b"", "sm_90a.cubin"),
        ((9, 0), b"cuModuleLoadData", "sm_90a.ptx"),
        ((8, 9), b"", "sm_86.cubin"),
        ((8, 0), b"", "sm_80.cubin"),
        ((12, 0), b"", "sm_80.ptx"),
    ):
        controls().fake_reset(1, MEMORY_BYTES, 1)
        controls().fake_describe(*capability, 13000)
        controls().fake_fail(call, 0)
        gpu = CudaDevice(0, str(fake_driver()), tmp_path)
        assert gpu.image_name == f"kernels_{name}"
        calls = doubling(gpu, *ones(gpu, 4))
        gpu.run(calls)
        gpu.run(calls)
        assert counted("early_edges") == (3 if capability == (9, 0) else 0)
        gpu.close()


def test_kernels_that_cannot_begin_early_begin_late(gpu: CudaDevice) -> None:
    arrays = ones(gpu, 4)
    calls = doubling(gpu, *arrays)
    controls().fake_fail(b"cuGraphAddDependencies", 0)
    for _ in range(3):
        gpu.run(calls)
    assert values(gpu, arrays) == [8.0] * 4 and counted("early_edges") == 0 and counted("graph_launches") == 2


@pytest.mark.parametrize("call", ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate", "cuGraphUpload"])
def test_a_graph_that_cannot_be_made_is_launches(gpu: CudaDevice, call: str) -> None:
    arrays = ones(gpu, 4)
    calls = doubling(gpu, *arrays)
    controls().fake_fail(call.encode(), 0)
    for _ in range(3):
        gpu.run(calls)
    assert values(gpu, arrays) == [8.0] * 4
    assert counted("graph_launches") == counted("graphs_held") == 0 and counted("launches") == 12


def test_a_graph_that_cannot_be_changed_is_dropped(gpu: CudaDevice) -> None:
    arrays = ones(gpu, 5)
    first, second = doubling(gpu, *arrays[:4]), doubling(gpu, arrays[4], *arrays[1:4])
    gpu.run(first)
    gpu.run(first)
    controls().fake_fail(b"cuGraphExecKernelNodeSetParams", 0)
    gpu.run(second)
    assert values(gpu, arrays) == [4.0, 8.0, 8.0, 8.0, 2.0] and counted("graphs_held") == 0


def test_a_graph_that_fails_is_an_error(gpu: CudaDevice) -> None:
    calls = doubling(gpu, *ones(gpu, 4))
    gpu.run(calls)
    controls().fake_fail(b"cuGraphLaunch", 0)
    with pytest.raises(BackendError, match="run was refused by the cuda backend: cuGraphLaunch: CUDA_ERROR_LAUNCH"):
        gpu.run(calls)


def test_no_more_are_kept_than_were_asked_for(gpu: CudaDevice) -> None:
    gpu.keep_graphs(2)
    lists = [doubling(gpu, *ones(gpu, 4, rows)) for rows in (1, 2, 3)]
    for calls in lists + lists:
        gpu.run(calls)
    assert counted("graphs_made") == 3 and counted("graphs_held") == 4  # each as it was built, and as it runs
    gpu.run(lists[1])
    gpu.run(lists[0])
    assert counted("graphs_made") == 4, "the one that was not used for the longest time was dropped"
    gpu.keep_graphs(0)
    for _ in range(3):
        gpu.run(lists[0])
    assert counted("graphs_held") == 0 and counted("graphs_made") == 4


def test_more_scratch_memory_drops_graphs(gpu: CudaDevice) -> None:
    arrays = ones(gpu, 4)
    calls = doubling(gpu, *arrays)
    for _ in range(3):
        gpu.run(calls)
    assert counted("graphs_held") == 2
    x = np.ones((3, 96), np.float32)
    run_on(gpu, "linear", np.zeros((3, 70), np.float32), x, packed())
    assert counted("graphs_held") == 0
    gpu.run(calls)
    assert values(gpu, arrays) == [16.0] * 4


@pytest.mark.usefixtures("fake")
def test_steps_of_an_engine_are_graphs_and_give_the_same_answers() -> None:
    params = SamplingParams(temperature=0.9, seed=7, max_tokens=16, logprobs=2, ignore_eos=True)
    names, found = ("graphs_made", "graph_launches", "nodes_changed"), []
    for call in (b"", b"cuGraphCreate"):
        controls().fake_fail(call, 0)
        before = [counted(name) for name in names]
        with LLM("spark", device="cuda", **SMALL) as llm:
            outputs = llm.generate([list(range(5, 45)), [9, 8, 7]], params)
        found.append([(output.completions[0].token_ids, output.completions[0].logprobs) for output in outputs])
        new = tuple(counted(name) - old for name, old in zip(names, before, strict=True))
        # There is one list of launches. The places of four steps' results, from which tokens come, are changed in turn.
        assert new == ((1, 8, 6 * 7) if call == b"" else (0, 0, 0))
    assert found[0] == found[1] and counted("graphs_held") == 0


def test_weights_may_be_written_while_a_step_is_collected(gpu: CudaDevice) -> None:
    arrays = ones(gpu, 4)
    calls, other = doubling(gpu, *arrays), gpu.put(np.zeros((64, 8), np.float32))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [gpu.write(other, np.full((64, 8), each, np.float32)) for each in range(40)])
        for _ in range(20):
            gpu.collect(calls)
        gpu.wait()
        writing.result()
    assert values(gpu, [*arrays, other]) == [2.0**20] * 4 + [39.0]
