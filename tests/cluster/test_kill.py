"""Replicas are killed in the middle of answers. Every stream ends as it would have ended, token for token.

The tests use real processes, real sockets and `kill -9`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from tests.cluster.running import Running, serving
from tests.tiers import TIER
from twostroke.distributed.fleet.fleet import MOST_DEATHS
from twostroke.llm import LLM
from twostroke.types.grammar import Grammar
from twostroke.types.sampling.sampling_params import SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 40}, "count": {"type": "integer"}},
    "required": ["word", "count"],
}
MANY = 96
ASKED: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.0, "seed": 5, "logprobs": True, "top_logprobs": 3},
    {"temperature": 0.9, "seed": 6, "presence_penalty": 0.7, "frequency_penalty": 0.4, "top_p": 0.9},
    {"temperature": 1.2, "seed": 7, "n": 3},
    {
        "temperature": 1.0,
        "seed": 8,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    },
    {"temperature": 0.8, "seed": 9, "stop": ["KV"], "logit_bias": {"300": 2}},
    {"n": 2, "stop": ["KV"], "max_tokens": 48, "extra_body": {"best_of": 3, "use_beam_search": True}},
]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(3) as made:
        yield made


class FewKills:
    """Kills replicas at random, but never the last one. A front gives up an answer after MOST_DEATHS of its replicas
    have ended. So fewer are killed while any answer lives."""

    def __init__(self, running: Running, seed: int) -> None:
        self.running, self.killed = running, 0
        self._dice, self._lock = random.Random(seed), threading.Lock()
        self._of_answers: dict[object, int] = {}

    def answer(self, fields: dict[str, Any], piece: Callable[[], None] = lambda: None) -> list[Any]:
        """Does what Running.answer does."""
        name = object()
        with self._lock:
            self._of_answers[name] = 0
        try:
            return self.running.answer(fields, piece)
        finally:
            with self._lock:
                del self._of_answers[name]

    def kill_one(self) -> None:
        """Kills a replica that computes, where a kill is allowed."""
        with self._lock:
            found = self.running.replicas()
            if len(found) > 1 and max(self._of_answers.values(), default=0) < MOST_DEATHS - 1:
                killed = kill(self._dice.choice(found))
                self.killed += killed
                self._of_answers = {name: before + killed for name, before in self._of_answers.items()}


def kill(process_id: int) -> bool:
    """Kills the replica. Returns False where it has ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)
        return True
    return False


def test_killed_replicas_change_no_stream(running: Running) -> None:
    expected = [running.answer(fields) for fields in ASKED]
    assert all(parts[2] in ("stop", "length") for choices in expected for parts in choices)
    assert expected[1][0][1], "log probabilities are part of what is compared"
    dice, kills = random.Random(4), FewKills(running, 4)
    with ThreadPoolExecutor(len(ASKED)) as threads:
        rounds = 0
        while rounds < 4 or (kills.killed < 4 and rounds < 40):  # a replica that was killed takes a while to come back
            rounds += 1
            answers = [threads.submit(kills.answer, fields) for fields in ASKED]
            ended = threading.Event()
            while not all(answer.done() for answer in answers) and not ended.wait(dice.uniform(0.05, 0.4)):
                kills.kill_one()
            assert [answer.result() for answer in answers] == expected
    assert kills.killed >= 4


def test_a_replica_searches_beams_as_an_engine_without_replicas(running: Running) -> None:
    words = ["prefill", "decode", "pages"]
    found = running.client.completions.create(
        model="spark",
        prompt="The cache holds",
        n=2,
        max_tokens=12,
        stop="cod",
        extra_body={"best_of": 4, "use_beam_search": True, "guided_choice": words},
    )
    grammar = Grammar.choice(words)
    params = SamplingParams(n=2, best_of=4, use_beam_search=True, max_tokens=12, grammar=grammar, stop=("cod",))
    with LLM("spark", kv_memory="20MB", threads=1) as llm:
        expected = [each.text for each in llm.generate("The cache holds", params)[0].completions]
    assert [each.text for each in found.choices] == expected and set(expected) < set(words)


@pytest.mark.slow
def test_the_end_of_all_replicas_makes_streams_wait(running: Running) -> None:
    expected = running.answer(ASKED[1])
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(running.answer, ASKED[1])
        time.sleep(0.1)
        for pid in running.replicas():
            kill(pid)
        assert answer.result() == expected


@pytest.mark.daily
def test_a_kill_at_every_kth_token_of_many_streams_changes_none(running: Running) -> None:
    """The requests have penalties, grammars, several choices, log probabilities and stop strings. Eight streams run at
    a time."""
    asked = [{**ASKED[number % len(ASKED)], "seed": number, "max_tokens": 48} for number in range(MANY)]
    kills, numbers = FewKills(running, TIER.seed), count(1)

    def piece() -> None:
        if next(numbers) % 101 == 0:
            kills.kill_one()

    with ThreadPoolExecutor(8) as threads:
        expected = list(threads.map(running.answer, asked))
        found = list(threads.map(lambda fields: kills.answer(fields, piece), asked))
    assert [number for number in range(MANY) if found[number] != expected[number]] == []
    assert kills.killed >= 2  # a killed replica takes seconds to come back, and one must live
