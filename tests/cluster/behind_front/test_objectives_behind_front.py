"""`serve --replicas N --ttft`: replicas keep the objective, and refusals tell clients when to come again. Real
processes run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.cluster.running import Running, serving

pytestmark = pytest.mark.slow

CALLS = 48


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(2, "--ttft", "150ms") as made:
        yield made


def ask(running: Running, number: int, **fields: Any) -> httpx2.Response:
    words = " ".join(f"{number * 31 + place}" for place in range(150))
    body = {"model": "spark", "prompt": words, "max_tokens": 4, "temperature": 0, **fields}
    return httpx2.post(f"{running.url}/v1/completions", json=body, timeout=120)


@pytest.mark.daily
def test_a_crowd_is_served_as_far_as_promised_and_the_rest_is_told_when_to_come_again(running: Running) -> None:
    """The number of refused requests depends on the speed of this machine; a quick one may refuse none.
    tests/fleet/test_objectives_across.py tests under a virtual clock when a request is refused."""
    with ThreadPoolExecutor(CALLS) as threads:
        found = list(threads.map(lambda number: ask(running, number), range(CALLS)))
    refused = [each for each in found if each.status_code == 503]
    assert len(refused) + sum(each.status_code == 200 for each in found) == CALLS
    assert len(refused) < CALLS
    for each in refused:
        assert each.json()["error"]["code"] == "overloaded"
        assert "0.15 s is the objective" in each.json()["error"]["message"]
    time.sleep(max((int(each.headers["retry-after"]) for each in refused), default=0))
    assert ask(running, 99).status_code == 200, "nothing else is there: no request is refused then"


def test_a_request_may_ask_for_a_later_time_and_for_no_earlier_one(running: Running) -> None:
    assert ask(running, 1, ttft_s=30.0).status_code == 200
    earlier = ask(running, 1, ttft_s=0.01)
    assert earlier.status_code == 400 and "ttft_s" in earlier.json()["error"]["message"]


def test_the_live_view_knows_the_objectives(running: Running) -> None:
    about = httpx2.get(f"{running.url}/v1/engine/about").json()
    assert about["objectives"] == {"ttft_s": 0.15, "itl_s": None}
