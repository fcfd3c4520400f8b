"""`kill -9` of the replica that computes prompts, or of the one that decodes, while pages are on their way.

The tests use real processes and real sockets. Every stream has the tokens and log probabilities of one engine.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import TIER
from twostroke.assembly.settings.env import process_environment
from twostroke.distributed.cluster.front import FrontStepper
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.fleet.fleet import ReplicaFleet
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.request import FinishReason, Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS

SOURCE = Path(__file__).parents[2] / "src"
PAGES, STREAMS, OUTPUT = 30, 4, 12
WAIT_S, NEVER_S = 120.0, 1e9
REMEMBERING: list[dict[str, Any]] = [
    *({}, {"mirostat": 2, "mirostat_eta": 0.4}, {"mirostat": 1}, {"adaptive_target": 0.2}),
]
"""Samplers with a memory, which moves together with the stream."""

Answers = dict[str, list[Any]]


class Replica:
    """`twostroke replica MODEL` with small steps. A prompt takes several steps, and its pages leave after each."""

    def __init__(self, role: str, model: str = "spark", step_tokens: int = 32, more: tuple[str, ...] = ()) -> None:
        self.role, self.model, self.step_tokens, self.more = role, model, step_tokens, more
        self.port = 0
        self.process = self._start()
        self._wait()

    def _start(self) -> subprocess.Popen[str]:
        words = ["--role", self.role, "--name", self.role, "--threads", "1", "--kv-memory", "16MB", "--json"]
        return subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "twostroke",
                "replica",
                self.model,
                *words,
                *self.more,
                "--max-step-tokens",
                str(self.step_tokens),
                "--max-sequences",
                "8",
            ]
            + ["--listen", f"127.0.0.1:{self.port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=process_environment() | {"PYTHONPATH": str(SOURCE)},
        )

    def _wait(self) -> None:
        assert self.process.stdout is not None
        lines = ""
        while True:
            line = self.process.stdout.readline()
            assert line, "the replica ended"
            lines += line
            with contextlib.suppress(ValueError):
                self.port = int(json.loads(lines)["listen"].rsplit(":", 1)[1])
                return

    def kill(self) -> None:
        """Kills the replica and starts another one at the same address. The front finds out when it is ready."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def replicas(*roles: str) -> Iterator[list[Replica]]:
    with ExitStack() as stack:
        made = [Replica(role) for role in roles]
        for each in made:
            stack.callback(each.close)
        yield made


@contextmanager
def front(found: list[Replica]) -> Iterator[FrontStepper]:
    addresses = [("127.0.0.1", each.port) for each in found]
    stepper = FrontStepper(addresses, PAGE_TOKENS, secret_key(None), time.monotonic, print, lambda text: None)
    stepper.fleet = ReplicaFleet(PAGE_TOKENS, sooner=lambda split_s, whole_s: True)
    try:
        join(stepper, len(addresses))
        yield stepper
    finally:
        stepper.close()


def join(stepper: FrontStepper, count: int) -> None:
    """Waits until this many replicas are there, with those that were killed."""
    until_s = time.monotonic() + WAIT_S
    while len(stepper.fleet.members) < count:
        assert time.monotonic() < until_s, stepper.states()
        stepper._exchange()


def requests(number: int) -> list[Request]:
    """Prompts that no earlier round had, so that their pages really travel."""
    made = []
    for index in range(STREAMS):
        dice = random.Random(f"{number} {index}")
        prompt = tuple(dice.randrange(3, 250) for _ in range(PAGES * PAGE_TOKENS + 5))
        own = REMEMBERING[index % len(REMEMBERING)]
        params = SamplingParams(temperature=1.0, logprobs=1, presence_penalty=0.5, seed=index, **own)
        name = f"{number}/{index}"
        made.append(Request(name, name, prompt, params, index, OUTPUT, frozenset(), time.monotonic()))
    return made


def answers(stepper: FrontStepper, number: int, happens: Callable[[Answers], None] = lambda told: None) -> Answers:
    """The answers to the requests of one round. happens: called repeatedly with the number of tokens so far."""
    asked = requests(number)
    told: Answers = {each.request_id: [] for each in asked}
    for request in asked:
        stepper.fleet.add(request)
    ended, until_s = 0, time.monotonic() + WAIT_S
    while ended < len(asked):
        assert time.monotonic() < until_s, stepper.states()
        happens(told)
        stepper._exchange()
        events, stepper._early = stepper._early, []
        for event in events:
            if isinstance(event, TokenEvent):
                told[event.request_id].append((event.token_id, event.logprob))
            elif isinstance(event, FinishedEvent):
                assert event.reason is FinishReason.LENGTH, event
                ended += 1
    assert all(len(each) == OUTPUT for each in told.values())
    return told


def killing(victim: Replica, after_s: float) -> Callable[[Answers], None]:
    """Kills once: this long after the round began, or when half of the tokens have come, because a quick machine ends
    sooner."""
    begin_s, killed = time.monotonic(), []

    def happens(told: Answers) -> None:
        late = sum(map(len, told.values())) >= STREAMS * OUTPUT // 2
        if not killed and (time.monotonic() - begin_s > after_s or (late and after_s < NEVER_S)):
            killed.append(True)
            victim.kill()

    return happens


def compare(rounds: list[tuple[int, float]]) -> None:
    """rounds: pairs of the replica that is killed and the seconds from the beginning of the round."""
    with replicas("both") as whole, front(whole) as alone:
        expected = [answers(alone, number) for number in range(len(rounds))]
    with replicas("prefill", "decode") as found, front(found) as stepper:
        for number, (victim, after_s) in enumerate(rounds):
            told = round_of(stepper, number, found, victim, after_s)
            assert told == expected[number], f"round {number}: replica {victim} killed after {after_s:.3f} s"
        for _ in range(10):  # for a machine that stood still, where every kill came too late
            if not stepper.fleet.moved:
                assert round_of(stepper, 0, found, 1, 0.0) == expected[0]
        assert stepper.fleet.handed_over > 0 and stepper.fleet.moved > 0


def round_of(stepper: FrontStepper, number: int, found: list[Replica], victim: int, after_s: float) -> Answers:
    """The answers of a round in which one of the replicas is killed."""
    join(stepper, len(found))
    return answers(stepper, number, killing(found[victim], after_s))


@pytest.mark.slow
def test_a_replica_killed_while_pages_travel_changes_no_stream() -> None:
    compare([(0, NEVER_S), (0, 0.1), (1, 0.1)])


@pytest.mark.daily
def test_many_kills_at_many_points_of_the_transfer() -> None:
    """The seed chooses the points."""
    dice = random.Random(TIER.seed)
    compare([(number % 2, dice.uniform(0.0, 1.2)) for number in range(5)])
