"""Replicas that are killed in the middle of answers: every stream ends as it would have ended, token for token.

Real processes, real sockets, `kill -9`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from twostroke.env import process_environment
from twostroke.llm import LLM
from twostroke.types.grammar import Grammar
from twostroke.types.sampling_params import SamplingParams

SOURCE = Path(__file__).parents[2] / "src"
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 40}, "count": {"type": "integer"}},
    "required": ["word", "count"],
}
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
]


class Running:
    """`twostroke serve spark --replicas 3`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)

    def replicas(self) -> list[int]:
        """Process ids."""
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{self.process.pid}/task")
            found = [child for task in path.iterdir() for child in (task / "children").read_text().split()]
            return [int(child) for child in found if "replica" in Path(f"/proc/{child}/cmdline").read_text()]
        return []

    def answer(self, fields: dict[str, Any], piece: Callable[[], None] = lambda: None) -> list[Any]:
        """The pieces of a stream, of each choice: text, log probabilities, finish reason. piece: called at each."""
        messages: Any = [{"role": "user", "content": "Write three sentences about prefill and decode."}]
        made: dict[int, list[Any]] = {}
        with self.client.chat.completions.create(
            model="spark", messages=messages, stream=True, **{"max_tokens": 160, **fields}
        ) as stream:
            for chunk in stream:
                piece()
                for choice in chunk.choices:
                    parts = made.setdefault(choice.index, ["", [], None])
                    parts[0] += choice.delta.content or ""
                    found = choice.logprobs.content if choice.logprobs else None
                    parts[1] += [(each.token, each.logprob) for each in found or ()]
                    parts[2] = choice.finish_reason or parts[2]
        return [made[index] for index in sorted(made)]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    command = [sys.executable, "-P", "-m", "twostroke", "serve", "spark", "--replicas", "3", "--threads", "1"]
    environment = process_environment() | {"PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        [*command, "--port", "0", "--kv-memory", "64MB", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        lines = ""
        while True:
            line = process.stdout.readline()
            assert line, "the server ended"
            lines += line
            with contextlib.suppress(ValueError):
                yield Running(process, json.loads(lines)["url"])
                break
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def test_killed_replicas_change_no_stream(running: Running) -> None:
    expected = [running.answer(fields) for fields in ASKED]
    assert all(parts[2] in ("stop", "length") for choices in expected for parts in choices)
    assert expected[1][0][1], "log probabilities are part of what is compared"
    dice, killed = random.Random(4), 0
    with ThreadPoolExecutor(len(ASKED)) as threads:
        for _ in range(4):
            answers = [threads.submit(running.answer, fields) for fields in ASKED]
            ended = threading.Event()
            while not all(answer.done() for answer in answers) and not ended.wait(dice.uniform(0.05, 0.4)):
                found = running.replicas()
                if len(found) > 1:  # one lives
                    os.kill(dice.choice(found), signal.SIGKILL)
                    killed += 1
            assert [answer.result() for answer in answers] == expected
    assert killed >= 4


def test_a_replica_searches_beams_as_an_engine_without_replicas(running: Running) -> None:
    words = ["prefill", "decode", "pages"]
    found = running.client.completions.create(
        model="spark",
        prompt="The cache holds",
        n=2,
        max_tokens=12,
        extra_body={"best_of": 4, "use_beam_search": True, "guided_choice": words},
    )
    params = SamplingParams(n=2, best_of=4, use_beam_search=True, max_tokens=12, grammar=Grammar.choice(words))
    with LLM("spark", kv_memory="20MB", threads=1) as llm:
        expected = [each.text for each in llm.generate("The cache holds", params)[0].completions]
    assert [each.text for each in found.choices] == expected and set(expected) < set(words)


def test_the_end_of_all_replicas_makes_streams_wait(running: Running) -> None:
    expected = running.answer(ASKED[1])
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(running.answer, ASKED[1])
        time.sleep(0.1)
        for pid in running.replicas():
            os.kill(pid, signal.SIGKILL)
        assert answer.result() == expected


@pytest.mark.slow
def test_a_kill_at_every_kth_token_of_200_streams_changes_none(running: Running) -> None:
    """Penalties, grammars, several choices, log probabilities, stop strings; eight streams at a time."""
    asked = [{**ASKED[number % len(ASKED)], "seed": number, "max_tokens": 48} for number in range(200)]
    dice, lock, counts = random.Random(9), threading.Lock(), {"pieces": 0, "kills": 0}

    def piece() -> None:
        with lock:
            counts["pieces"] += 1
            found = running.replicas() if counts["pieces"] % 149 == 0 else []
            if len(found) > 1:  # one lives
                os.kill(dice.choice(found), signal.SIGKILL)
                counts["kills"] += 1

    with ThreadPoolExecutor(8) as threads:
        expected = list(threads.map(running.answer, asked))
        found = list(threads.map(lambda fields: running.answer(fields, piece), asked))
    assert [number for number in range(200) if found[number] != expected[number]] == []
    assert counts["kills"] >= 2, counts  # a killed replica takes seconds to come back, and one must live
