"""The choice of where a prompt is computed and whether its pages are moved. It depends on predicted seconds."""

from __future__ import annotations

import operator

import pytest

from twostroke.distributed.fleet.moving import (
    USUAL_RATE,
    ReplicaPlacement,
    moving_s,
    place_encode,
    place_split,
    place_whole,
)
from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing, prefix_keys
from twostroke.distributed.wire.frames import ReplicaLoad, ReplicaRole

PAGE_TOKENS = 16
TOKENS = tuple(range(1600))
ASKED = Placing(len(TOKENS), prefix_keys("", TOKENS, PAGE_TOKENS), PAGE_TOKENS)


def member(name: str, role: ReplicaRole = "both", page_bytes: int = 16_000, **load: float) -> FleetMember:
    found = FleetMember(name, name, 8, ReplicaLoad(**{"token_s": 0.001, **load}), role=role)  # type: ignore[arg-type]
    found.page_bytes = page_bytes
    return found


def test_a_prompt_beside_many_streams_is_computed_elsewhere() -> None:
    reader, router = member("p", "prefill"), LeastSeconds()
    busy, idle = member("d", "decode", running=4), member("d", "decode")
    assert place_split(ASKED, [reader], [busy], router, operator.lt) == ReplicaPlacement(reader, None, busy)
    assert place_split(ASKED, [reader], [idle], router, operator.lt) == ReplicaPlacement(idle)


def test_a_slow_network_keeps_the_prompt_where_it_is_decoded() -> None:
    reader, slow = member("p", "prefill"), member("d", "decode", running=4, page_rate=1e5)
    assert place_split(ASKED, [reader], [slow], LeastSeconds(), operator.lt) == ReplicaPlacement(slow)


def test_a_long_queue_of_prompts_keeps_it_there_too() -> None:
    queue, busy = member("p", "prefill", prefill_tokens=100_000), member("d", "decode", running=4)
    assert place_split(ASKED, [queue], [busy], LeastSeconds(), operator.lt) == ReplicaPlacement(busy)


def test_pages_of_a_busy_replica_are_moved_to_an_idle_one() -> None:
    busy, idle, router = member("a", prefill_tokens=50_000), member("b"), LeastSeconds()
    router.remember(ASKED, busy)
    assert place_whole(ASKED, [busy, idle], router) == ReplicaPlacement(idle, busy)
    slow = member("b", page_rate=1e5)
    assert place_whole(ASKED, [busy, slow], router) == ReplicaPlacement(slow), "computing is sooner"
    assert place_whole(ASKED, [busy, member("b", page_bytes=0)], router).source is None


def test_bytes_over_a_rate() -> None:
    one = moving_s(1600, PAGE_TOKENS, member("a")) - moving_s(0, PAGE_TOKENS, member("a"))
    assert one == pytest.approx(1_600_000 / USUAL_RATE)


def seeing(name: str, **fields: float) -> FleetMember:
    """A cost in which a row takes 10 ms and has 100 bytes."""
    load = {key: fields.pop(key) for key in ("running", "encode_s", "page_rate") if key in fields}
    found = member(name, **load)
    found.image_row_s, found.image_row_bytes = 0.01, 100
    found.sent_encode_s = fields.get("sent_encode_s", 0.0)
    return found


def test_an_image_is_encoded_elsewhere_unless_that_takes_longer() -> None:
    text, free = seeing("t"), seeing("e")
    assert place_encode(100, text, [free], operator.lt) is free, "who comes meanwhile does not wait for the encode"
    assert place_encode(0, text, [free], operator.lt) is None
    assert place_encode(100, text, [], operator.lt) is None
    queue = seeing("q", encode_s=1.5)
    assert place_encode(100, text, [queue], operator.lt) is None
    assert place_encode(100, seeing("t", running=4), [queue], operator.lt) is queue, "four streams would wait"
    assert place_encode(100, text, [queue, free], operator.lt) is free
    assert place_encode(100, text, [seeing("s", sent_encode_s=1.5)], operator.lt) is None, "not reported yet"
    slow = seeing("t", page_rate=5e3)
    assert place_encode(100, slow, [free], operator.lt) is None, "the rows take longer than the encode"
