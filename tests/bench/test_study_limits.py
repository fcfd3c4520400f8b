"""The study of the machine's limits on a small layer: every case has its parts, and shares follow from seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from tools import study_limits
from tools.study_limits import (
    CASES,
    Case,
    ExpertShape,
    Share,
    Study,
    as_json,
    format_called,
    prompt,
    streams,
    study,
    table,
)

from twostroke.backends.cpu.limits import Limits
from twostroke.lab.planner.doctor.stopwatch import Stopwatch
from twostroke.lab.planner.doctor.synthetic import SMALL
from twostroke.ops.quant.formats import INT8
from twostroke.types.spec.formats import KVKind, WeightKind

LIMITS = Limits(2, "avx2", 10e9, 100e9, 400e9)


class Clock:
    """A clock whose readings are a millisecond apart, so that times do not depend on the machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(study_limits.SHAPES, "small", SMALL)
    for name, value in (
        ("COLD_BYTES", 1 << 20),
        ("KV_BYTES", 4 << 20),
        ("EXPERTS", {"mixture": ExpertShape(256, 128, 8, 2)}),
    ):
        monkeypatch.setattr(study_limits, name, value)
    monkeypatch.setattr(study_limits.LimitMeter, "measure", lambda self, rounds: LIMITS)
    yield


def test_every_format_and_case_has_a_share_of_a_layer(small: None) -> None:
    cases = [streams(1), streams(2, 64), prompt(32)]
    found = study("small", ["int8", "Q4_K", "bf16"], cases, 1, 2, Stopwatch(Clock(), 0.0))
    assert [(each.weights, each.kv, each.case) for each in found.shares] == [
        (name, kv, case)
        for name, kv in (("int8", "int8"), ("Q4_K", "int8"), ("bf16", "bf16"))
        for case in ("streams-1", "streams-2-at-64", "prompt-32")
    ]
    # A call lasts one reading of the clock.
    assert all(each.products_s == each.attention_s == each.others_s == pytest.approx(1e-3) for each in found.shares)
    assert found.near_ops_per_s["int8"] == pytest.approx(2 * 512 * 128 * 2048 / 1e-3)
    assert found.limits == LIMITS
    each = 2 * (INT8.total_bytes(256, 256) + INT8.total_bytes(256, 128))
    assert found.experts_share["mixture"]["int8"] == pytest.approx(each / 10e9 / 1e-3)


def test_the_limit_is_the_lower_one_of_the_layer() -> None:
    int8 = format_called("int8")
    elements = SMALL.weights
    tiny = 64 * SMALL.hidden  # the head of the layer's model
    few, many = (streams(count, 16).bound(SMALL, int8, KVKind.INT8, LIMITS) for count in (1, 512))
    assert "reading" in few.words and "products" in many.words
    assert 512 / many.tokens_per_s == pytest.approx(512 * 2 * (elements + tiny) / 400e9, rel=0.01)
    whole = prompt(2048).bound(SMALL, int8, KVKind.INT8, LIMITS)
    assert 1 / whole.tokens_per_s == pytest.approx(2 * elements / 400e9, rel=0.01)


def test_a_share_is_what_the_limit_takes_of_all_parts() -> None:
    share = Share("int8", "int8", "streams-1", 2e-3, 1e-3, 1e-3, 1e-3, "reading")
    assert share.seconds == 4e-3 and share.share == 0.25
    found = Study(
        "a machine", "1b", LIMITS, (share,), {"int8": 200e9}, {"mixture": {"int8": 1e-3}}, {"mixture": {"int8": 0.5}}
    )
    assert "| int8 | int8 | streams-1 | 4.000 ms | 25% | reading | 50% | 25% | 25% |" in table(found)
    assert "| int8 | 200 | 50% |" in table(found) and "| mixture | int8 | 1.000 ms | 50% |" in table(found)
    plain = json.loads(as_json(found))
    assert plain["shares"][0]["share"] == 0.25 and plain["limits"]["int8_ops_per_s"] == 400e9


def test_a_prompt_is_measured_by_the_chunk_in_its_middle() -> None:
    assert (prompt(512).rows, prompt(512).context) == (512, 512)
    assert (prompt(2048).rows, prompt(2048).context) == (512, 1280)
    batch = prompt(2048).batch(0, 1000)
    assert batch.row_starts.tolist() == [0, 512] and batch.context_tokens.tolist() == [1280]


def test_variants_have_pages_of_their_own() -> None:
    case = streams(3, 40)
    first, second = (case.batch(variant, 100).page_table for variant in (0, 1))
    assert first.shape == (3, 3) and not np.intersect1d(first, second).size
    assert case.variants(100) == 8 and case.variants(20) == 2 and case.variants(5) == 1


def test_formats_are_called_as_options_and_files_call_them() -> None:
    assert format_called("Q4_K").kind is WeightKind.SUPER4_MIN
    assert format_called("int4").kind is WeightKind.INT4
    with pytest.raises(ValueError, match="Q4_K"):
        format_called("int3")


def test_the_cases_are_those_of_the_page() -> None:
    assert [case.name for case in CASES.values()] == [
        *("streams-1", "streams-8", "streams-16", "streams-1-at-8192", "streams-1-at-16384"),
        *("prompt-512", "prompt-2048", "prompt-8192", "prompt-16384"),
    ]
    assert all(isinstance(case, Case) for case in CASES.values())
