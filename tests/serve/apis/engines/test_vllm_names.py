"""The `vllm:*` names with exact counts, as vLLM's own test of its metrics wants them, and the Grafana dashboard."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serve.harness import WAIT_S, Live, serving, slow_steps, wait_until
from tests.serve.shown.test_metrics import samples, scrape
from twostroke.server.build import build_server
from twostroke.server.telemetry import vllm_names as names
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.types.event import FinishedEvent
from twostroke.types.output import Timings
from twostroke.types.request import FinishReason

DASHBOARD = Path(__file__).resolve().parents[4] / "deploy" / "grafana" / "twostroke.json"
REQUESTS, PROMPT, NEW = 6, 23, 10


@pytest.fixture
def spark() -> Iterator[Live]:
    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built, serving(built.parts) as live:
        yield live


def alias(found: dict[str, float], name: str, **labels: str) -> float:
    told = ",".join(f"{key}={value}" for key, value in sorted({"engine": "0", "model_name": "spark", **labels}.items()))
    return found[f"vllm:{name}{{{told}}}"]


def at_rest(live: Live) -> dict[str, float]:
    wait_until(lambda: alias(scrape(live), "num_requests_running") == 0, "rest")
    return scrape(live)


def test_counts_are_exact(spark: Live) -> None:
    for place in range(REQUESTS):
        ids = [300 + place * PROMPT + at for at in range(PROMPT)]
        assert spark.complete(prompt=ids, max_tokens=NEW, ignore_eos=True).status == 200
    now = at_rest(spark)
    counts = {
        "time_to_first_token_seconds": REQUESTS,
        "inter_token_latency_seconds": REQUESTS * (NEW - 1),
        "time_per_output_token_seconds": REQUESTS * (NEW - 1),
        "request_time_per_output_token_seconds": REQUESTS,
        "e2e_request_latency_seconds": REQUESTS,
        "request_queue_time_seconds": REQUESTS,
        "request_inference_time_seconds": REQUESTS,
        "request_prefill_time_seconds": REQUESTS,
        "request_decode_time_seconds": REQUESTS,
        "request_prompt_tokens": REQUESTS,
        "request_generation_tokens": REQUESTS,
        "request_prefill_kv_computed_tokens": REQUESTS,
        "request_max_num_generation_tokens": REQUESTS,
        "request_params_n": REQUESTS,
        "request_params_max_tokens": REQUESTS,
        "request_num_preemptions": REQUESTS,
        "iteration_tokens_total": REQUESTS * NEW,
    }
    assert {name: alias(now, f"{name}_count") for name in counts} == counts
    sums = {
        "request_prompt_tokens": REQUESTS * PROMPT,
        "request_generation_tokens": REQUESTS * NEW,
        "request_prefill_kv_computed_tokens": REQUESTS * PROMPT,
        "request_max_num_generation_tokens": REQUESTS * NEW,
        "request_params_n": REQUESTS,
        "request_params_max_tokens": REQUESTS * NEW,
        "request_num_preemptions": 0,
        "iteration_tokens_total": REQUESTS * (PROMPT + NEW),
    }
    assert {name: alias(now, f"{name}_sum") for name in sums} == sums
    assert alias(now, "prompt_tokens_total") == REQUESTS * PROMPT
    assert alias(now, "generation_tokens_total") == REQUESTS * NEW
    ends = {
        reason: alias(now, "request_success_total", finished_reason=reason) for reason in ("stop", "length", "abort")
    }
    assert ends == {"stop": 0, "length": REQUESTS, "abort": 0}
    assert alias(now, "prefix_cache_queries_total") == REQUESTS * PROMPT
    assert alias(now, "prefix_cache_hits_total") == 0
    begun, spent = alias(now, "request_queue_time_seconds_sum"), alias(now, "request_inference_time_seconds_sum")
    assert begun + spent == pytest.approx(alias(now, "e2e_request_latency_seconds_sum"))
    parts = ("request_prefill_time_seconds_sum", "request_decode_time_seconds_sum")
    assert sum(alias(now, name) for name in parts) == pytest.approx(spent)


def sources(found: dict[str, float]) -> list[float]:
    names = ("local_compute", "local_cache_hit", "external_kv_transfer")
    return [alias(found, "prompt_tokens_by_source_total", source=name) for name in names]


def test_prompts_are_counted_by_where_they_came_from_and_the_longest_of_n_counts_once(spark: Live) -> None:
    ids = list(range(300, 340))  # 40 tokens: two whole pages
    made = [spark.complete(prompt=ids, max_tokens=4, n=n, ignore_eos=True, temperature=1).json for n in (1, 3)]
    cached = made[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == 32
    stops = {"prompt": [[900], [901]], "stop": ["e"], "n": 2, "max_tokens": 30, "temperature": 1, "seed": 1}
    several = spark.complete(**stops, logprobs=0).json
    longest = [
        max(len(each["logprobs"]["tokens"]) for each in several["choices"][first : first + 2]) for first in (0, 2)
    ]
    now = at_rest(spark)
    assert sources(now) == [40 + 8 + 2, 32, 0] and sum(sources(now)) == alias(now, "prompt_tokens_total")
    assert alias(now, "prompt_tokens_cached_total") == cached
    assert alias(now, "request_max_num_generation_tokens_count") == 1 + 1 + 2
    assert alias(now, "request_max_num_generation_tokens_sum") >= 4 + 4 + sum(longest)
    assert alias(now, "request_prefill_kv_computed_tokens_count") == 1 + 3 + 4
    assert alias(now, "estimated_flops_per_gpu_total") == now["twostroke_flops_total"] > 0


def test_a_prompt_that_was_never_read_has_no_source() -> None:
    metrics = ServerMetrics()
    ended = FinishedEvent("a/0", FinishReason.ABORT, 2.0, 10, 0, 0, 0, None)
    metrics.on_finish(ended, Timings(1.0, None, None, 2.0))
    found = samples(metrics.text())
    assert found["twostroke_prompt_tokens_computed_total"] == 0
    assert found["twostroke_request_computed_prompt_tokens_count"] == 0
    metrics.on_finish(replace(ended, reason=FinishReason.LENGTH, first_scheduled_s=1.5), Timings(1.0, 1.5, None, 2.0))
    assert samples(metrics.text())["twostroke_prompt_tokens_computed_total"] == 10, "scored, without a token"


def test_several_completions_of_a_prompt_and_an_end_token(spark: Live) -> None:
    made = spark.complete(prompt=[900, 77, 1500], n=3, max_tokens=5, ignore_eos=True, seed=1, temperature=1).json
    assert made["usage"]["completion_tokens"] == 15
    answer = spark.chat(temperature=0, max_tokens=400).json
    assert answer["choices"][0]["finish_reason"] == "stop"
    now = at_rest(spark)
    assert alias(now, "request_params_n_sum") == 3 + 1 and alias(now, "request_params_n_count") == 2
    assert alias(now, "time_to_first_token_seconds_count") == 3 + 1
    tokens = answer["usage"]["completion_tokens"]
    assert alias(now, "generation_tokens_total") == 15 + tokens
    assert alias(now, "inter_token_latency_seconds_count") == 3 * 4 + tokens - 1
    assert alias(now, "request_success_total", finished_reason="stop") == 1


def test_an_abort_is_counted_and_gauges_return_to_zero(spark: Live) -> None:
    threads = [threading.Thread(target=spark.complete, kwargs={"max_tokens": 40, "ignore_eos": True}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with slow_steps(0.01), socket.create_connection(("127.0.0.1", spark.port), timeout=WAIT_S) as leaver:
        body = json.dumps(
            {"model": "spark", "prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        ).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        leaver.sendall(head + body)
        leaver.recv(100)
    now = at_rest(spark)
    assert alias(now, "request_success_total", finished_reason="abort") == 1
    assert [alias(now, name) for name in ("num_requests_waiting", "kv_cache_usage_perc")] == [0, 0]
    assert alias(now, "num_requests_waiting_by_reason", reason="capacity") == 0


def test_every_alias_is_served_and_none_has_another_name(spark: Live) -> None:
    text = spark.get("/metrics").body.decode()
    served = set(re.findall(r"^# TYPE (vllm:\S+) ", text, re.MULTILINE))
    plain = [*names.GAUGES, names.WAITING_BY_REASON, names.CACHE, *names.HISTOGRAMS]
    totals = [*names.COUNTERS, names.FINISHED, names.BY_SOURCE]
    assert served == {*(f"vllm:{name}" for name in plain), *(f"vllm:{name}_total" for name in totals)}
    facts = next(line for line in text.splitlines() if line.startswith("vllm:cache_config_info{"))
    assert f'kv_cache_size_tokens="{spark.parts.serving.view.about["settings"]["kv_tokens"]}"' in facts


def expressions(value: Any) -> Iterator[str]:
    """Every query in a dashboard."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("expr", "query", "definition") and isinstance(each, str):
                yield each
            else:
                yield from expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from expressions(each)


def test_the_dashboard_asks_for_metrics_that_exist(spark: Live) -> None:
    spark.complete(max_tokens=3)
    text = spark.get("/metrics").body.decode()
    served = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    asked = list(expressions(json.loads(DASHBOARD.read_text())))
    named = {name for query in asked for name in re.findall(r"\b(?:vllm|twostroke)[:_][a-z0-9_:]+", query)}
    assert len(asked) >= 12 and len(named) >= 12
    assert named - served == set()
    assert all(name.startswith("vllm:") for name in named), "the board works with any server that has the vLLM names"
    labels = {label for query in asked for label in re.findall(r"([a-z_]+)=~?\"", query)}
    assert labels <= {"model_name", "finished_reason"}
