"""One replica computes a prompt and another decodes it, over real sockets, with the bits of a single engine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from twostroke.assembly.processes.replica import BuiltReplica, ReplicaEndpoint, build_replica
from twostroke.distributed.cluster.front import FrontStepper
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.distributed.wire.frames import ReplicaRole
from twostroke.types.errors import ConfigError
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS

OPTIONS = {"threads": "1", "kv_memory": "8MB"}
PROMPT = tuple(3 + 7 * index % 250 for index in range(5 * PAGE_TOKENS + 3))


@contextmanager
def served(
    role: ReplicaRole, options: dict[str, Any] = OPTIONS, name: str = "one"
) -> Iterator[tuple[BuiltReplica, tuple[str, int]]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said: list[str] = []
        built = build_replica("spark", options, ReplicaEndpoint(listener, f"{role} {name}", "s", role), said.append)
        thread = threading.Thread(target=built.replica.serve)
        with built.heart:
            thread.start()
            try:
                yield built, listener.getsockname()[:2]
            finally:
                built.replica.stop()
                thread.join(PATIENCE_S)


def requests() -> list[Request]:
    """The second request has the beginning of the first one, and then differs."""
    warm, cold = SamplingParams(temperature=1.0, logprobs=2), SamplingParams(temperature=0.0, logprobs=0)
    return [
        Request("a", "a", PROMPT, warm, 7, 24, frozenset(), time.monotonic()),
        Request("b", "b", (*PROMPT[: 3 * PAGE_TOKENS], *range(9, 60)), cold, 8, 24, frozenset(), time.monotonic()),
    ]


def answers(addresses: list[tuple[str, int]]) -> tuple[dict[str, list[Any]], FrontStepper]:
    """The tokens and log probabilities of each request, as a front receives them."""
    front = FrontStepper(addresses, PAGE_TOKENS, secret_key("s"), time.monotonic, print, lambda text: None)
    front.fleet = ReplicaFleet(PAGE_TOKENS, sooner=lambda split_s, whole_s: True)
    until_s = time.monotonic() + 60
    while len(front.fleet.members) < len(addresses):
        assert time.monotonic() < until_s, front.states()
        front._exchange()
    for request in requests():
        front.fleet.add(request)
    while sum(isinstance(event, FinishedEvent) for event in front._early) < 2:
        assert time.monotonic() < until_s, front.states()
        front._exchange()
    told: dict[str, list[Any]] = {"a": [], "b": []}
    for event in front._early:
        assert not isinstance(event, FinishedEvent) or event.error is None
        if isinstance(event, TokenEvent):
            told[event.request_id].append((event.token_id, event.logprob))
    return told, front


def test_a_handed_over_stream_has_the_bits_of_one_engine() -> None:
    with ExitStack() as stack:
        _, whole = stack.enter_context(served("both"))
        expected, alone = answers([whole])
        alone.close()
        _, reads = stack.enter_context(served("prefill"))
        decoder, decodes = stack.enter_context(served("decode"))
        found, front = answers([reads, decodes])
        gauges = decoder.heart.scheduler.gauges()
        front.close()
    assert len(expected["a"]) == len(expected["b"]) == 24
    assert found == expected
    assert front.fleet.handed_over == 2
    assert gauges.prefix_hit_tokens >= 5 * PAGE_TOKENS, "the pages of the prompts came from the other replica"


def test_a_model_in_parts_cannot_have_a_role() -> None:
    with pytest.raises(ConfigError, match=r"--role prefill.*part of K and V.*Leave --role out"):
        with served("prefill", OPTIONS | {"tensor_parallel": "2"}):
            raise AssertionError


def test_small_steps_are_no_other_arithmetic() -> None:
    """The probe's prompt is longer than such a step, and small steps have the same bits. So replicas of both kinds may
    share streams and pages."""
    few = OPTIONS | {"max_step_tokens": 8, "max_sequences": 4}
    with served("both") as (whole, _), served("both", few) as (small, _):
        assert small.replica._facts.arithmetic == whole.replica._facts.arithmetic
