"""Every kernel compiles for the named chips with the instructions that were meant; the assembler reports no spills."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from twostroke.backends.cuda import build

KERNELS = re.findall(r"K\((\w+)\)", (build.cpu_build().HEADERS / "twostroke/cuda/arguments.h").read_text())
MOST_REGISTERS = 168
"""Three blocks of 128 threads then fit a multiprocessor at once; attention has the most."""


def bodies(chip: str) -> dict[str, str]:
    """The text of each kernel."""
    text = build.compile_ptx(chip).read_text()
    parts = re.split(r"^\.visible \.entry ts_kernel_(\w+)\(", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("chip", build.CHIPS)
def test_every_kernel_is_there_and_rounds_as_the_cpu_does(chip: str) -> None:
    found = bodies(chip)
    assert sorted(found) == sorted(set(KERNELS)) and len(KERNELS) >= 19
    text = "".join(found.values())
    for loose in ("approx", ".ftz", "ex2", "lg2", "local_depot", "fma.rn.f64"):
        assert loose not in text, loose
    for name in ("linear_float", "attention_float", "rms_norm", "gate"):
        assert "fma.rn.f32" in found[name]
    assert "sqrt.rn.f32" in found["rms_norm"] and "div.rn.f32" in found["gate"]
    assert "mul.rn.f64" in found["weigh"] and "add.rn.f64" in found["weigh"]
    for name in ("linear_whole", "attention_whole"):
        assert "dp4a.u32.s32" in found[name]
    assert not re.search(r"\bcall\b", text)  # a barrier in a function that is not inlined could be moved
    for name in ("linear_whole", "attention_whole", "attention_float", "quantize", "layer_norm"):
        assert found[name].count("bar.sync") >= 2
    # Unfused on purpose: rope multiplies, then adds.
    assert "fma.rn" not in found["rope"] and "fma.rn" not in found["add"]


def assembler() -> Path | None:
    found = importlib.util.find_spec("nvidia")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    return next((path for folder in folders for path in Path(folder).glob("cu*/bin/ptxas")), None)


@pytest.mark.slow
@pytest.mark.parametrize("chip", build.CHIPS)
def test_the_assembler_finds_no_spills(chip: str, tmp_path: Path) -> None:
    ptxas = assembler()
    if ptxas is None:
        pytest.skip("not assembled: pip install nvidia-cuda-nvcc==13.0.88 (of the test extra) brings ptxas")
    ptxas.chmod(ptxas.stat().st_mode | 0o111)  # some installers drop it
    command = [str(ptxas), "-v", f"-arch={chip}", str(build.compile_ptx(chip)), "-o", str(tmp_path / "kernels.cubin")]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    frames = re.findall(r"Function properties for ts_kernel_(\w+)\s+(\d+) bytes stack frame, (\d+) bytes spill", report)
    assert {name for name, _, _ in frames} == set(KERNELS)
    assert [frame for frame in frames if frame[1:] != ("0", "0")] == []
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", report)]
    assert len(registers) == len(set(KERNELS)) and max(registers) <= MOST_REGISTERS
    assert (tmp_path / "kernels.cubin").stat().st_size < 1 << 20
