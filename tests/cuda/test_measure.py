"""tools/gpu/measure.py runs to its end on the emulated device, and reports a byte that differs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.gpu import compare, kernel_shapes, measure, outside, schedules, shapes
from tools.gpu.compare import compared

from tests.cuda.emulator.fake import controls, device, same_level
from twostroke.models.common.registry import read_model

MAY_BE_THERE = {"_distutils_hack", "typing_extensions"}
"""Modules that an environment loads by itself, and modules that msgspec or numpy import where they are installed."""


def bench(seconds: float) -> measure.Bench:
    ticks = itertools.count()
    return measure.Bench(
        device,
        lambda: float(next(ticks)),
        seconds,
        shapes.SMALL,
        kernel_shapes.SMALL_TABLES,
        shapes.SMALL_STEPS,
        copied_bytes=1 << 20,
        emulated=True,
        rounds=1,
        peer_s=2.0,
    )


@pytest.mark.daily
@pytest.mark.slow
def test_the_script_runs_and_finds_nothing_different(monkeypatch: pytest.MonkeyPatch) -> None:
    if same_level() is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    # Other tests here run all formats and schedules, each of which takes half a minute in the emulator.
    monkeypatch.setattr(schedules, "FORMATS", schedules.FORMATS[:1])
    monkeypatch.setattr(schedules, "SCHEDULES", schedules.SCHEDULES[::3])
    monkeypatch.setattr(compare, "TIMED", {"int8": compare.TIMED["int8"]})
    kept: list[str] = []
    seconds = 4_000  # readings of a clock that counts them
    names = list(measure.parts_of(bench(1.0)))
    found = measure.measure(bench(seconds), None, lambda each: kept.append(json.dumps(each)))
    assert measure.rows_of(found, "failed") == [] and not measure.is_wrong(found)
    for name in ("sampling", "ops", "logits", "schedules"):
        assert [row for row in found["parts"][name] if "different" in row], name
    assert len(kept) >= len(names) and json.loads(kept[-1])["device"]["name"] == "Emulated device 0"
    text = measure.report(found)
    for name in ("compute-sanitizer memcheck", "compute-sanitizer racecheck", "torch", "llama.cpp"):
        assert f"- missing: {name}" in text or f"| {name}" in text or f"- {name}" in text, name
    assert "0 differ, 0 failed" in text and "16 streams" in text
    assert "**tiny int8**" in text and "| linear_add o | " in text and "| rows a second | " in text
    assert "Emulated: the times say nothing" in text and controls().fake_used() == 0


LOADED = """
import json, sys, sysconfig
import tools.gpu.measure
site = sysconfig.get_path("purelib")
files = {name.partition(".")[0]: getattr(each, "__file__", None) or "" for name, each in list(sys.modules.items())}
print(json.dumps(sorted(name for name, path in files.items() if path.startswith(site))))
"""


def test_a_machine_with_a_gpu_needs_few_packages() -> None:
    """The modules that the script imports beyond the standard library and this repository."""
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert set(json.loads(ran.stdout)) - MAY_BE_THERE == set(measure.NEEDED)


def test_a_byte_that_differs_and_a_part_that_fails_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**compared(np.ones(3, np.float32), np.zeros(3, np.float32)), "case": "linear: one"}

    def two_parts(_bench: measure.Bench) -> Any:
        return {"one": lambda _ops: iter([wrong]), "two": lambda _ops: iter([1 / 0])}

    monkeypatch.setattr(measure, "parts_of", two_parts)
    found = measure.measure(bench(9.0), None, lambda _found: None)
    text = measure.report(found)
    assert wrong["different"] > 0 and "- differs: linear: one" in text and measure.is_wrong(found)
    assert "- failed: part two: ZeroDivisionError" in text


def test_a_shape_that_does_not_fit_is_a_row_and_the_others_are_measured() -> None:
    """The device is too small for the weights of one pair of formats, and for the pages of the next one."""
    model = read_model(shapes.SMALL["tiny"])
    (_, _, bf16) = (model.weight_bytes(choice) for _, choice, _ in shapes.FORMATS[:3])
    rooms = iter((1 << 30, 1000, bf16 + 4096, 1 << 30))

    def timed(call: Callable[[], object]) -> float:
        call()
        return 1.0

    steps = shapes.SMALL_STEPS[:1]
    found = list(shapes.time_steps(lambda: device(memory_bytes=next(rooms)), shapes.SMALL, steps, timed, lambda: True))
    assert [each.get("seconds") for each in found] == [1.0, None, None, 1.0]
    assert "do not fit" in found[1]["not_run"] and "weights and pages do not fit" in found[2]["not_run"]
    assert controls().fake_used() == 0


def program(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_other_programs_are_read_and_none_holds_the_others_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts take the places of compute-sanitizer and llama-bench: one finds something, one answers, and one hangs."""
    prompts = {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "n_ubatch": 256, "avg_ts": 1234.5}
    speeds = [prompts, prompts | {"n_prompt": 0, "n_gen": 64, "n_depth": 512, "avg_ts": 56.7}]
    answer = json.dumps(speeds, indent=1)
    says = 'case "$*" in *memcheck*) echo "3 cases compared, 0 differ"; exit 0;; esac; echo "a hazard"; exit 9'
    found = program(tmp_path, "compute-sanitizer", says)
    bench_program = program(tmp_path, "llama-bench", f"echo noise; echo '{answer}'")
    monkeypatch.setattr(outside, "SANITIZERS", (None, found))
    monkeypatch.setattr(outside.shutil, "which", {"llama-bench": bench_program}.get)
    rows = list(outside.sanitized(lambda: 20.0))
    assert rows[0]["found"] == "3 cases compared, 0 differ; no error" and "exit code 9: a hazard" in rows[1]["found"]
    found_speeds = {row["what"]: row["rows_per_s"] for row in outside.llama_cpp_figures("model.gguf", lambda: 20.0)}
    assert found_speeds == {
        "llama.cpp, 512 in, 0 out, pieces of 256": 1234.5,
        "llama.cpp, 0 in, 64 out after 512": 56.7,
    }
    program(tmp_path, "llama-bench", "echo loading; sleep 60")  # its child holds the pipes
    (late,) = outside.llama_cpp_figures("model.gguf", lambda: 0.2)
    assert "loading" in late["missing"] and "not done after" in late["missing"]
    (without,) = outside.llama_cpp_figures(None, lambda: 20.0)
    assert "no --gguf" in without["missing"]
