"""K and V in int4 lose much: a start says so where they are asked for, and only there."""

from __future__ import annotations

import pytest

from twostroke.llm import LLM


@pytest.mark.parametrize(("kv_format", "warned"), [("int4", True), ("int8", False), ("bf16", False)])
def test_a_start_says_what_int4_costs(kv_format: str, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with LLM("spark", kv_format=kv_format, context=128, kv_memory=1 << 22, max_sequences=2, cache="off"):
        pass
    said = capsys.readouterr().err
    assert ("int4 change answers" in said) == warned
