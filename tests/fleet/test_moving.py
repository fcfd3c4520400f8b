"""Where a prompt is computed and whether its pages are moved: by seconds."""

from __future__ import annotations

import operator

import pytest

from twostroke.distributed.fleet.moving import USUAL_RATE, ReplicaPlacement, moving_s, place_split, place_whole
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
