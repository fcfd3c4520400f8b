"""The effect of guesses during a run, read from a server's own counters."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from twostroke.lab.bench.load.guessed import GuessTotals, guess_totals

METRICS = """# HELP vllm:spec_decode_num_draft_tokens_total x
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="a } b"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="a"} 2.0 1700000000
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 1.2e1
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 900
"""
OURS = "twostroke_draft_won_seconds_total 1.5\ntwostroke_draft_lost_seconds_total 0.25\n"


def read(text: str, status: int = 200) -> GuessTotals | None:
    asked: list[str] = []

    def reply(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(status, text=text)

    async def ask() -> GuessTotals | None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(reply)) as client:
            return await guess_totals(client, "http://127.0.0.1:8000/v1")

    found = asyncio.run(ask())
    assert asked == ["http://127.0.0.1:8000/metrics"]
    return found


def test_counters_are_summed_over_labels() -> None:
    assert read(METRICS) == GuessTotals(42, 12, None, None)
    assert read(METRICS + OURS) == GuessTotals(42, 12, 1.5, 0.25)


@pytest.mark.parametrize(("text", "status"), [(METRICS, 404), ("", 200), ("{}", 200), ("vllm:other 3", 200)])
def test_a_server_that_counts_no_guesses_says_nothing(text: str, status: int) -> None:
    assert read(text, status) is None


def test_broken_lines_are_left_out() -> None:
    name = "vllm:spec_decode_num_draft_tokens_total"
    assert read(f"{name}\n{name} x\n{name} 3\n") == GuessTotals(3, 0, None, None)


def test_what_came_during_a_run() -> None:
    run = GuessTotals(142, 62, 1.75, 0.5).since(GuessTotals(42, 12, 1.5, 0.25))
    assert run == GuessTotals(100, 50, 0.25, 0.25)
    text = run.text()
    assert (
        text.startswith("50 of 100 guessed tokens were accepted (50%): about 250 ms") and "250 ms for verifying" in text
    )
    assert GuessTotals(10, 5, None, None).text() == "5 of 10 guessed tokens were accepted (50%)"
    assert GuessTotals(10, 5, 0.0, 0.0).text() == "5 of 10 guessed tokens were accepted (50%)"  # a front predicts none
