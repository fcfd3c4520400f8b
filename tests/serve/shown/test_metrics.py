"""Metrics: names, kinds, and numbers that agree with what happened."""

from __future__ import annotations

import threading

from prometheus_client.parser import text_string_to_metric_families

from tests.serve.fakes import FakeEngine, Turnstile, fake_parts
from tests.serve.harness import Live, serving, wait_until
from twostroke.cost.history.ledger import MAX_STEPS, Ledger
from twostroke.cost.history.step_history import Row
from twostroke.server.live.recent import MOST_NEXT
from twostroke.server.telemetry.history_metrics import HistoryCollector
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.types.event import FinishedEvent
from twostroke.types.output import Timings
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams


def samples(text: bytes) -> dict[str, float]:
    """Sample name with labels -> value."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "le")
            if "le" not in sample.labels:
                found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def scrape(live: Live) -> dict[str, float]:
    reply = live.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(reply.body)


def test_gauges_follow_the_engine_and_return_to_zero() -> None:
    engine = FakeEngine("a" * 500)
    engine.gate = gate = Turnstile()
    with serving(fake_parts(engine)) as live:
        thread = threading.Thread(target=lambda: live.complete(n=3, max_tokens=50))
        thread.start()
        wait_until(lambda: scrape(live)["twostroke_requests_running"] == 3, "three running")
        assert scrape(live)["twostroke_kv_pages_used"] == 3
        assert scrape(live)["twostroke_kv_used_ratio"] == 0.03
        gate.let(live.loop)
        thread.join()
        after = scrape(live)
        assert [after[f"twostroke_{name}"] for name in ("requests_running", "requests_waiting", "kv_pages_used")] == [
            0
        ] * 3
        assert after["twostroke_kv_pages_free"] == 100
        assert after["twostroke_prompt_tokens_total"] == 2


def test_responses_are_counted_by_status() -> None:
    with serving(fake_parts()) as live:
        live.chat()
        live.chat(stream=True)
        live.chat(model="x")
        live.get("/nothing", Host="evil.example")
        now = scrape(live)
        assert now["twostroke_http_responses_total{status=200}"] == 2
        assert now["twostroke_http_responses_total{status=404}"] == 1
        assert now["twostroke_http_responses_total{status=403}"] == 1


def test_two_apps_share_nothing() -> None:
    with serving(fake_parts()) as one, serving(fake_parts()) as other:
        one.chat()
        assert "twostroke_http_responses_total{status=200}" not in scrape(other)


def _request(prompt_tokens: int) -> Request:
    return Request("r/0", "r", tuple(range(prompt_tokens)), SamplingParams(), 0, 9, frozenset(), 0.0)


def _planned(prompt_tokens: int, start: int, count: int) -> PlannedSequence:
    role = Role.PREFILL if start < prompt_tokens else Role.DECODE
    return PlannedSequence(_request(prompt_tokens), start, count, list(range(start + count)), ([0],), True, role)


def test_a_steps_rows_are_divided_into_prompt_and_decoding_positions() -> None:
    metrics = ServerMetrics()
    plan = Plan(1, (_planned(5, 7, 1), _planned(5, 5, 1), _planned(20, 0, 8), _planned(20, 16, 4), _planned(4, 3, 3)))
    metrics.on_step(plan, StepResult({}), 0.25)
    now = samples(metrics.text())
    assert now["twostroke_step_prefill_tokens_sum"] == 8 + 4 + 1
    assert now["twostroke_step_decode_tokens_sum"] == 2 + 2
    assert now["twostroke_step_seconds_sum"] == 0.25


def test_guesses_are_counted_by_place() -> None:
    metrics = ServerMetrics()
    drafted = _planned(2, 4, 4)._replace(draft_token_ids=(7, 8, 9))
    result = StepResult({drafted.request.request_id: (SampledToken(7), SampledToken(8), SampledToken(1))})
    metrics.on_step(Plan(1, (drafted,), num_draft_tokens=3), result, 0.25)
    metrics.on_step(Plan(2, (drafted,), num_draft_tokens=3), StepResult({}), 0.25)
    now = samples(metrics.text())
    assert now["twostroke_drafts_total"] == 2
    assert now["twostroke_draft_tokens_total"] == 6
    assert now["twostroke_accepted_draft_tokens_total"] == 2
    assert now["twostroke_accepted_draft_tokens_per_pos_total{position=0}"] == 1
    assert now["twostroke_accepted_draft_tokens_per_pos_total{position=1}"] == 1
    assert now["twostroke_step_tokens_sum"] == 3
    assert now["twostroke_step_decode_tokens_sum"] == 2  # guesses are no positions of the output


def test_what_guesses_won_and_lost_is_counted_when_a_completion_ends() -> None:
    metrics = ServerMetrics()
    ended = FinishedEvent("r/0", FinishReason.STOP, 2.0, 5, 9, 0, 0, 1.0)
    for _ in range(2):
        metrics.on_finish(ended, Timings(0.5, 1.0, 1.5, 2.0, guesses_won_s=0.25, guesses_lost_s=0.0625))
    metrics.on_finish(ended, Timings(0.5, 1.0, 1.5, 2.0))
    now = samples(metrics.text())
    assert now["twostroke_draft_won_seconds_total"] == 0.5
    assert now["twostroke_draft_lost_seconds_total"] == 0.125


def test_observed_times_and_ends() -> None:
    metrics = ServerMetrics()
    metrics.on_first_token(0.5)
    metrics.on_next_tokens([0.25, 0.25])
    end = FinishedEvent("r/0", FinishReason.LENGTH, 2.0, 4, 3, 0, 0, 0.125)
    metrics.on_finish(end, Timings(0.0, 0.125, 0.5, 1.0))
    metrics.on_finish(FinishedEvent("q/0", FinishReason.ABORT, 2.0, 4, 0, 0, 0, None), Timings(0.0))
    now = samples(metrics.text())
    assert now["twostroke_time_to_first_token_seconds_sum"] == 0.5
    assert now["twostroke_inter_token_latency_seconds_count"] == 2
    assert now["twostroke_request_queue_seconds_sum"] == 0.125
    assert now["twostroke_request_seconds_count"] == 1
    assert now["twostroke_generation_tokens_total"] == 3
    assert now["twostroke_requests_finished_total{reason=length}"] == 1
    assert now["twostroke_requests_finished_total{reason=abort}"] == 1


def test_histories_say_how_full_they_are() -> None:
    ledger, metrics = Ledger(), ServerMetrics()
    metrics.registry.register(HistoryCollector(ledger, metrics.recent))
    fill = "twostroke_history_fill_ratio{history=%s}"
    assert samples(metrics.text())[fill % "steps"] == 0.0
    metrics.on_next_tokens([0.25] * (MOST_NEXT // 4))
    for step in range(2 * MAX_STEPS):
        ledger.history.open(step, step + 1, (Row("a", step, 1, True, step, 0, 0, 0, 0, Role.DECODE),), ())
        ledger.history.recent.append((step, step, 0.0, 0.0, 0, 0.0))
    now = samples(metrics.text())
    assert now[fill % "steps"] == 1.0 and now[fill % "gaps"] == 0.25 and now[fill % "completions"] == 0.0
