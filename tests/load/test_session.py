"""Sessions against a scripted server on a socket: counts, order, failures, Ctrl-C. No test needs absolute times."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.load.fake_openai import AROUND, Fake, Refusal, answer, chunk, event, serving, words_in
from twostroke.lab.bench.load.client import COMPLETIONS
from twostroke.lab.bench.load.report import LoadReport, make_report
from twostroke.lab.bench.load.session import Measured, Target, open_session
from twostroke.lab.workload.lengths import Lengths
from twostroke.lab.workload.objectives import Objectives
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.lab.workload.synthetic import closed_loop
from twostroke.types.errors import ConfigError


def run(fake: Fake, requests: list[WorkloadRequest], users: int | None, warmup: int = 0, **target: Any) -> LoadReport:
    async def main() -> LoadReport:
        async with serving(fake):
            asked = Target(fake.url, **target)
            async with open_session(asked, asyncio.get_running_loop().time, True) as session:
                await session.warm_up(requests, warmup, 1)
                fake.bodies.clear()
                fake.most_at_once = 0
                measured = await session.measure(requests, users, 1)
                return make_report(session.facts, "load", {}, measured, Objectives(ttft_s=60.0))

    return asyncio.run(main())


async def wait_for(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.002)


def test_a_closed_loop_counts_by_usage_and_asks_for_exact_prompts() -> None:
    fake = Fake(lambda number, body: answer(body, 0.01, 0.001))
    report = run(fake, closed_loop(12, Lengths(40), Lengths(5)), 3, warmup=1)
    found = report.figures
    assert (found.requests, found.completed, found.prompt_tokens, found.output_tokens) == (12, 12, 480, 60)
    assert found.cached_tokens == 24 and fake.most_at_once == 3 and found.busy_most == 3
    assert [words_in(body) + AROUND for body in fake.bodies] == [40] * 12
    assert len({body["messages"][0]["content"] for body in fake.bodies}) == 12
    assert found.itl and found.itl.count == 48 and found.good == 12
    assert "as asked in 12 of 12" in report.text() and report.as_json()["requests"][0]["prompt_tokens"] == 40
    vllm = report.tools[0].figures
    assert vllm[1].value and vllm[1].value.count == 12 * 6, "gaps of seven chunks: vLLM counts those without text too"


def test_an_open_loop_never_waits_for_slow_answers() -> None:
    def all_there() -> Any:
        return wait_for(lambda: len(fake.bodies) == 8)

    fake = Fake(lambda number, body: [all_there, *answer(body)] if body["max_tokens"] == 3 else answer(body))
    requests = [WorkloadRequest(0.01 * index, 20, 3) for index in range(8)]
    report = run(fake, requests, None, silence_s=10.0)
    assert fake.most_at_once == 8 and report.figures.completed == 8, "no request is answered before all are sent"
    seen = sorted(report.measured.seen, key=lambda each: each.intended_s)
    assert [each.intended_s for each in seen] == [request.arrival_s for request in requests]
    assert all(each.ttft_s and each.ttft_s >= each.sent_s - each.intended_s for each in seen)


def test_the_first_chunk_without_text_is_no_first_token() -> None:
    fake = Fake(lambda number, body: answer(body, 0.3) if body["max_tokens"] == 2 else answer(body))
    report = run(fake, closed_loop(2, Lengths(20), Lengths(2)), 1)
    ours, vllm = report.figures.ttft, report.tools[0].figures[0].value
    assert ours and vllm and ours.low >= 0.3 and vllm.low < ours.low


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Refusal(429, "slow down"), "HTTP 429: slow down"),
        (Refusal(500, "x"), "HTTP 500: x"),
        ([chunk("a")], "the stream ended before its end"),
        (
            [chunk("a"), event({"error": {"message": "engine died"}}), event(b"[DONE]")],
            "error in the stream: engine died",
        ),
        ([event(b"nonsense")], "an event of the stream is no JSON chunk"),
    ],
)
def test_failures_are_counted_and_the_run_goes_on(bad: Any, words: str) -> None:
    fake = Fake(lambda number, body: bad if body["max_tokens"] == 4 and number % 2 == 0 else answer(body))
    report = run(fake, closed_loop(6, Lengths(20), Lengths(4)), 1)
    assert (report.figures.completed, report.figures.errors) == (3, {words: 3})
    assert report.figures.good == 3 and f"3 failed: {words}" in report.text()


def test_a_request_that_a_kept_connection_lost_is_sent_again_and_counted() -> None:
    fake = Fake(answers_per_connection=1)
    report = run(fake, closed_loop(6, Lengths(20), Lengths(4)), 1)
    assert (report.figures.completed, report.figures.errors) == (6, {}) and report.asked_again > 0
    assert f"{report.asked_again} requests were asked again on a fresh connection" in report.text()
    value = report.as_json()
    assert value["asked_again"] == sum(each["asked_again"] for each in value["requests"]) == report.asked_again


def test_a_request_is_not_asked_again_where_an_answer_began_or_the_connection_was_fresh() -> None:
    fake = Fake(lambda number, body: [chunk("a")] if body["max_tokens"] == 4 else answer(body))
    assert run(fake, closed_loop(2, Lengths(20), Lengths(4)), 1).asked_again == 0
    garbled = Fake(answers_per_connection=2, goodbye=b"nonsense\r\n\r\n")
    with pytest.raises(ConfigError, match="illegal status line"):
        run(garbled, closed_loop(2, Lengths(20), Lengths(4)), 1)
    silent = Fake(answers_per_connection=0)
    with pytest.raises(ConfigError, match="No server answers"):
        run(silent, closed_loop(2, Lengths(20), Lengths(4)), 1)


def test_an_answer_that_is_not_streamed_is_a_failure() -> None:
    fake = Fake(content_type="application/json")
    with pytest.raises(ConfigError, match="not streamed"):
        run(fake, closed_loop(1, Lengths(20), Lengths(4)), 1)


def test_a_silent_server_times_out() -> None:
    fake = Fake(lambda number, body: [chunk("a"), 30.0] if body["max_tokens"] == 4 else answer(body))
    for silence_s in (0.2, 5.0):  # on a machine that stood still, an answer from the beginning may come too late
        try:
            report = run(fake, closed_loop(1, Lengths(20), Lengths(4)), 1, silence_s=silence_s)
        except ConfigError:
            continue
        break
    assert report.figures.errors == {"timed out (ReadTimeout)": 1}


def test_without_usage_chunks_are_counted_and_it_is_said() -> None:
    from twostroke.assets import spark_path
    from twostroke.text.tokenizer import Tokenizer

    fake = Fake(lambda number, body: answer(body, with_usage=False))
    with pytest.raises(ConfigError, match="how many tokens"):
        run(fake, closed_loop(2, Lengths(20), Lengths(4)), 1)
    tokenizer = Tokenizer.from_folder(spark_path())
    report = run(fake, closed_loop(2, Lengths(20), Lengths(4)), 1, tokenizer=tokenizer, route=COMPLETIONS)
    assert (report.figures.uncounted, report.figures.output_tokens) == (2, 8) and "without usage" in report.text()
    assert [len(tokenizer.encode_prompt(body["prompt"])) for body in fake.bodies] == [20, 20]


def test_requests_are_clipped_to_the_servers_context() -> None:
    fake = Fake(models={"data": [{"id": "fake-model", "max_model_len": 50}]})
    report = run(fake, [WorkloadRequest(0, 500, 10), WorkloadRequest(0, 30, 10)], 1)
    assert [words_in(body) + AROUND for body in fake.bodies] == [40, 30] and report.measured.clipped == 1
    assert "1 requests were shortened" in report.text()


def test_the_key_and_the_model_are_sent() -> None:
    fake = Fake()
    run(fake, closed_loop(1, Lengths(20), Lengths(2)), 1, api_key="sesame", model="fake-model")
    assert all("authorization: bearer sesame" in head.lower() for head in fake.headers)
    assert fake.bodies[0]["model"] == "fake-model" and fake.bodies[0]["ignore_eos"] is True


@pytest.mark.parametrize("asked", ["FAKE-model.gguf", "fake-model:latest"])
def test_a_name_may_differ_as_servers_of_files_let_it(asked: str) -> None:
    fake = Fake()
    run(fake, closed_loop(1, Lengths(20), Lengths(2)), 1, model=asked)
    assert fake.bodies[0]["model"] == "fake-model"


@pytest.mark.parametrize(
    ("fake", "target", "words"),
    [
        (Fake(models_status=401, models={"error": {"message": "no key"}}), {}, ["HTTP 401: no key", "--api-key"]),
        (Fake(models_status=429, models={"detail": "too many"}), {}, ["HTTP 429: too many", "--rate"]),
        (Fake(), {"model": "fake-modell"}, ["does not serve 'fake-modell'", "--model fake-model"]),
        (Fake(models={"data": []}), {}, ["lists no model"]),
        (Fake(models_status=404), {}, ["HTTP 404", "/v1"]),
        (Fake(lambda number, body: Refusal(401, "bad key")), {}, ["HTTP 401: bad key", "--api-key"]),
        (Fake(lambda number, body: Refusal(429, "busy")), {}, ["HTTP 429: busy", "Wait"]),
    ],
)
def test_a_server_that_cannot_be_measured_is_one_clear_error(fake: Fake, target: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        run(fake, closed_loop(1, Lengths(20), Lengths(2)), 1, **target)
    for each in words:
        assert each in str(caught.value)


def test_a_server_without_a_list_of_models_is_asked_by_name() -> None:
    fake = Fake(models_status=404)
    assert run(fake, closed_loop(1, Lengths(20), Lengths(2)), 1, model="hidden").facts.model == "hidden"


def test_a_model_without_a_chat_template_is_asked_for_completions() -> None:
    fake = Fake(models={"data": [{"id": "base", "has_chat_template": False}]})
    run(fake, closed_loop(1, Lengths(20), Lengths(2)), 1)
    assert "prompt" in fake.bodies[0] and "messages" not in fake.bodies[0]


def test_a_server_that_is_not_there() -> None:
    async def main() -> None:
        async with serving(Fake()) as fake:
            gone = fake.url
        async with open_session(Target(gone), asyncio.get_running_loop().time, True):
            pass

    with pytest.raises(ConfigError, match="No server answers") as caught:
        asyncio.run(main())
    assert "twostroke serve" in caught.value.fix


def test_an_interrupt_keeps_what_was_measured() -> None:
    fake = Fake(lambda number, body: answer(body, 30.0) if body["max_tokens"] == 9 else answer(body))
    requests = [WorkloadRequest(0, 20, 3)] * 4 + [WorkloadRequest(0, 20, 9)] * 2

    async def main() -> Measured:
        async with serving(fake), open_session(Target(fake.url), asyncio.get_running_loop().time, True) as session:

            def watch(progress: Any) -> None:
                if len(progress.seen) == 4 and progress.sent == 6 and not progress.cut:
                    os.kill(os.getpid(), signal.SIGINT)

            return await session.measure(requests, 2, 1, watch=watch)

    measured = asyncio.run(main())
    assert measured.interrupted and len(measured.seen) == 4 and measured.cut == 2
    assert all(each.whole for each in measured.seen)
