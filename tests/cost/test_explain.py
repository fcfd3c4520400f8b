"""Each scenario has a deliberate cause, and explain must name it, in 95% and more of the generated scenarios."""

from __future__ import annotations

import json
import random

import pytest

from twostroke.cost.explain.advice import Options
from twostroke.cost.explain.explanation import CauseKind, Verdict, words
from twostroke.cost.explain.verdict import Explainer
from twostroke.cost.history.ledger import Ledger
from twostroke.cost.history.step_history import device_seconds

from .scenarios import FIRST, TOLD, WHAT_IF, Scenario, explained, warmed
from .virtual import Lab, text

SEEDS = range(24)
LEAST_SHARE = 0.95


@pytest.mark.parametrize("scenario", FIRST, ids=lambda scenario: scenario.__name__)
def test_the_injected_cause_comes_first(scenario: Scenario) -> None:
    found = [scenario(random.Random(seed)) for seed in SEEDS]
    missed = [(seed, words(each.explanation)) for seed, each in zip(SEEDS, found, strict=True) if not each.is_named()]
    assert len(missed) <= (1 - LEAST_SHARE) * len(SEEDS), missed[0]


@pytest.mark.parametrize("scenario", TOLD, ids=lambda scenario: scenario.__name__)
def test_the_injected_cause_is_named(scenario: Scenario) -> None:
    found = [scenario(random.Random(seed)) for seed in SEEDS]
    missed = [(seed, words(each.explanation)) for seed, each in zip(SEEDS, found, strict=True) if not each.is_told()]
    assert len(missed) <= (1 - LEAST_SHARE) * len(SEEDS), missed[0]


def test_figures_come_from_the_cost_model() -> None:
    """The share of reading weights and the gain of int4 are those that the cost model gives for this step."""
    lab = warmed(random.Random(0))
    lab.request(0, "victim", text(1, 40), 80)
    lab.run()
    found = explained(lab)
    sample = lab.account("victim").sample
    assert [segment.num_tokens for segment in sample] == [1] and 40 < sample[0].start < 120
    costs = {"int8": WHAT_IF.now, **WHAT_IF.narrower_weights()}
    seconds = {name: device_seconds(cost.predict(sample)) for name, cost in costs.items()}
    parts = WHAT_IF.now.predict(sample).parts
    share = sum(part.seconds for part in parts if part.name in ("weights", "head")) / seconds["int8"]
    first = found.advice[0]
    assert f"{share:.0%} of each token is reading weights: int4 weights" in first.text
    assert f"would give {seconds['int8'] / seconds['int4']:.1f}x" in first.text
    decode_s = next(cause.seconds for cause in found.causes if cause.kind is CauseKind.DECODE)
    assert first.saves_s == pytest.approx(decode_s * (1 - seconds["int4"] / seconds["int8"]))
    assert any("KV in place of bf16 would not help" in each.text for each in found.advice)


@pytest.mark.parametrize("scenario", [*FIRST, *TOLD], ids=lambda scenario: scenario.__name__)
def test_causes_stay_within_the_time_and_are_in_order(scenario: Scenario) -> None:
    for seed in range(4):
        found = scenario(random.Random(seed)).explanation
        seconds = [cause.seconds for cause in found.causes]
        assert seconds == sorted(seconds, reverse=True)
        assert 0.9 * found.e2e_s <= sum(seconds) <= found.e2e_s * (1 + 1e-9)
        assert sum(found.parts_s.values()) == pytest.approx(found.e2e_s)
        assert json.loads(json.dumps(found.as_json()))["request_id"] == "victim/0"


def test_the_stretched_gap_is_the_one_that_was_long() -> None:
    """The gap that explain shows is the longest one between the reader's tokens."""
    for seed in range(8):
        lab = warmed(random.Random(seed))
        times: list[float] = []
        lab.session.observer.on_next_tokens = times.extend  # type: ignore[method-assign]
        lab.request(0, "victim", text(1, 20), 50)
        lab.request(0.05 + 0.01 * seed, "long", text(2, 1500), 1)
        lab.run()
        told = next(cause.text for cause in explained(lab).causes if cause.kind is CauseKind.STRETCHED)
        longest = max(times)
        near = [i + 1 for i, gap_s in enumerate(times) if gap_s > 0.9 * longest]
        assert any(f"after token {place} " in told for place in near), (told, near)


def test_an_aborted_request_that_never_began_is_explained() -> None:
    lab = warmed(random.Random(0), max_sequences=1)
    lab.request(0, "long", text(1, 300), 50)
    lab.request(0.001, "victim", text(2, 30), 5)
    lab.at(0.1, lambda: lab.stepper.abort("victim"))
    lab.run()
    found = explained(lab)
    assert found.ttft_s is None and found.verdict is Verdict.START
    assert "without a token" in found.summary and found.causes[0].kind is CauseKind.QUEUE


def test_nothing_is_said_of_what_is_not_known() -> None:
    lab = Lab()
    lab.run()
    assert Explainer(lab.ledger, WHAT_IF, Options(512, 16)).explain("nobody") == []


def test_without_a_cost_model_parts_and_causes_remain() -> None:
    lab = Lab(ledger=Ledger(None))
    lab.request(0, "victim", text(1, 20), 30)
    lab.request(0.05, "long", text(2, 1500), 2)
    lab.run()
    (found,) = Explainer(lab.ledger, None, Options(512, 16)).explain("victim")
    assert {cause.kind for cause in found.causes} >= {CauseKind.DECODE, CauseKind.STRETCHED}
    assert words(found)
