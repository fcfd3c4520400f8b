"""tools/gpu/measure.py runs whole on the emulated device, and tells a byte that differs."""

from __future__ import annotations

import itertools
import json

import pytest
from tools.gpu import measure

from tests.cuda.fake import controls, device, same_level
from tests.tiers import fewer


@pytest.mark.slow
def test_the_script_runs_and_finds_nothing_different() -> None:
    if same_level() is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    ticks = itertools.count()
    seconds = fewer(100_000, 1_000)  # of a clock that counts its readings
    found = measure.measure(device, lambda: float(next(ticks)), seconds, {"small": (256, 128)})
    compared = [row for row in found["cases"] if "different" in row]
    assert [row for row in found["cases"] if row.get("different") or "failed" in row] == []
    assert len(compared) > fewer(150, 30)
    assert json.loads(json.dumps(found))["device"]["name"] == "Emulated device 0"
    text = measure.report(found)
    assert "0 differ, 0 failed" in text and "| small, int4, one row |" in text
    assert controls().fake_used() == 0


def test_a_byte_that_differs_is_told() -> None:
    case = next(iter(measure.op_cases()))
    wrong = {**measure.compared(case.operands[0] + 1, case.operands[0]), "case": "linear: one"}
    facts = {"name": "one", "capability": (9, 0), "driver_version": 13000, "total_bytes": 10**9}
    text = measure.report({"device": facts, "cpu_level": "avx2", "cases": [wrong], "times": []})
    assert wrong["different"] > 0 and "- differs: linear: one" in text
