"""K and V in int4 lose much accuracy. A start warns where they are asked for, and only there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twostroke.llm import LLM
from twostroke.ops.quant.formats import kv_warning

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("kv_format", "warned"), [("int4", True), ("int8", False), ("bf16", False)])
def test_a_start_says_what_int4_costs(kv_format: str, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with LLM("spark", kv_format=kv_format, context=128, kv_memory=1 << 22, max_sequences=2, cache="off"):
        pass
    said = capsys.readouterr().err
    assert ("int4 change answers" in said) == ("an error of 0.26 next to float32" in said) == warned


def test_the_figures_of_the_warning_are_those_of_the_record() -> None:
    rows = json.loads((ROOT / "docs" / "published.json").read_text())["models"]["SmolLM2-135M"]["rows"]
    errors = {row["kv"]: row["error"] for row in rows if row["weights"] == "f32"}
    said = kv_warning("int4") or ""
    (same,) = (row["same"] for row in rows if row["weights"] == "f32" and row["kv"] == "int4")
    assert round(1 / (1 - same)) == 5 and "one position of five" in said
    assert f"{errors['int4']:.2f} next to float32 (int8: {errors['int8']:.2f})" in said
