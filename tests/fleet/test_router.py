"""The choice of the replica that gets a request."""

from __future__ import annotations

import pytest

from twostroke.distributed.fleet.router import FleetMember, LeastSeconds, Placing, prefix_keys
from twostroke.distributed.wire.frames import ReplicaLoad

PAGE_TOKENS = 16
TOKENS = tuple(range(1600))
ASKED = Placing(len(TOKENS), prefix_keys("", TOKENS, PAGE_TOKENS), PAGE_TOKENS)


def member(name: str, streams: int = 0, **load: float) -> FleetMember:
    reported = ReplicaLoad(running=streams, **{"token_s": 0.001, **load})  # type: ignore[arg-type]
    return FleetMember(name, name, 8, reported, streams=streams)


def chosen(*members: FleetMember, cached_tokens: int = 0) -> str:
    """The choice, where the last of the members has the prompt's beginning."""
    router = LeastSeconds()
    router.remember(Placing(cached_tokens, ASKED.keys[: cached_tokens // PAGE_TOKENS], PAGE_TOKENS), members[-1])
    return router.rank(ASKED, members).name


def test_an_idle_replica_waits_for_no_step() -> None:
    """An idle replica's last step has ended, however long it was."""
    assert chosen(member("idle", step_s=5.0), member("busy", 1, step_s=0.05)) == "idle"


@pytest.mark.parametrize("token_s", [0.00055, 0.0009, 0.001])
def test_streams_are_not_held_up_for_a_prediction_that_is_a_little_lower(token_s: float) -> None:
    assert chosen(member("idle"), member("busy", 3, token_s=token_s, step_s=0.05)) == "idle"


def test_a_busy_replica_that_has_most_of_the_prompt_is_chosen() -> None:
    assert chosen(member("idle"), member("busy", 3, step_s=0.05), cached_tokens=1200) == "busy"
    assert chosen(member("idle"), member("busy", 3, step_s=0.05), cached_tokens=400) == "idle"


def test_among_busy_replicas_the_first_token_decides() -> None:
    assert chosen(member("far", 2, prefill_tokens=900, step_s=0.05), member("near", 5, step_s=0.05)) == "near"


def test_a_full_replica_is_chosen_last() -> None:
    assert chosen(member("full", 8), member("far", 7, prefill_tokens=20_000)) == "far"
