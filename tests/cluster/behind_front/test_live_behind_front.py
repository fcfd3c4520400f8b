"""What viewers of a front see: its replicas, its requests, and the same routes as those of an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from tests.cluster.test_pages_travel import served
from tests.serve.harness import Live, serving, wait_until
from twostroke.cli.server.top_picture import Picture
from twostroke.server.build_front import build_front
from twostroke.server.document.openapi_engine import FRAME


@pytest.fixture(scope="module")
def front() -> Iterator[Live]:
    with served("both") as (_, address), build_front("spark", {}, [address], "s", lambda text: None) as built:
        with serving(built.parts) as live:
            yield live


def frame(front: Live) -> dict[str, Any]:
    found: dict[str, Any] = front.call("GET", "/v1/engine/steps?frames=1").events[0]
    return found


def test_a_frame_shows_each_replica_and_its_load(front: Live) -> None:
    front.call("POST", "/v1/completions", {"model": "spark", "prompt": "The cache", "max_tokens": 12})
    found = frame(front)

    def at_rest() -> bool:
        """Waits, because a replica's report of itself comes a little later than its tokens."""
        nonlocal found
        found = frame(front)
        return not found["replicas"][0]["running"] and found["replicas"][0]["step_s"] > 0

    wait_until(at_rest, "rest")
    (replica,) = found["replicas"]
    assert set(replica) == set(FRAME["properties"]["replicas"]["items"]["properties"])
    assert (replica["name"], replica["state"], replica["role"]) == ("both one", "ready", "both")
    assert replica["output_tokens"] > 0 and replica["pages"] > 0 and replica["step_s"] > 0
    pages = sum(count for _, count in found["pages"])
    assert pages == replica["pages"], "the map of KV memory is that of all replicas"


def test_requests_have_their_phases_and_parts(front: Live) -> None:
    front.call("POST", "/v1/completions", {"model": "spark", "prompt": "The cache", "max_tokens": 12})
    ended = frame(front)["ended"][-1]
    assert ended["output_tokens"] > 0 and ended["ttft_s"] > 0
    parts = ended["parts_s"]
    # A front measures the times at which it receives tokens. If one message brings every token, there is no time
    # between them.
    assert parts["own_prefill_s"] > 0 and parts["decode_s"] >= 0
    assert sum(parts.values()) == pytest.approx(ended["finished_s"] - ended["arrival_s"], abs=1e-4)
    text = front.call("GET", "/metrics").body.decode()
    counted = [line for line in text.splitlines() if line.startswith("twostroke_") and 'part="own_prefill"' in line]
    assert counted and all(float(line.split()[-1]) > 0 for line in counted), "metrics have the same parts"
    assert 'part="decode"' in text


def test_about_has_what_the_page_asks_for(front: Live) -> None:
    about = front.call("GET", "/v1/engine/about").json
    assert about["settings"]["replicas"] == 1 and about["settings"]["context"] > 0
    assert about["objectives"] == {"ttft_s": None, "itl_s": None} and "limits" not in about


def test_top_shows_replicas(front: Live) -> None:
    picture = Picture(front.call("GET", "/v1/engine/about").json)
    picture.add(frame(front))
    console = Console(width=140)
    with console.capture() as shown:
        console.print(picture.drawing())
    assert "both one" in shown.get() and "ready" in shown.get()
    assert json.loads(json.dumps(picture.figures()))["replicas"][0]["role"] == "both"
