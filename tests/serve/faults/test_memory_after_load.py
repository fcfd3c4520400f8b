"""A server's own memory after long prompts and heavy grammars stays below the plan's figure for it."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from twostroke.assembly.machine.heap import Trimmer, keep_little, trim
from twostroke.cost.memory import PROCESS_BYTES

POOL_BYTES = 16_000_000
WAIT_S = 60.0
GLIBC = keep_little()


@dataclass(frozen=True, slots=True)
class Served:
    process: subprocess.Popen[str]
    port: int

    def post(self, path: str, **fields: Any) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("POST", path, json.dumps({"model": "spark", **fields}, ensure_ascii=False).encode())
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def at_once(self, requests: list[tuple[str, dict[str, Any]]]) -> list[int]:
        statuses: list[int] = []

        def ask(path: str, fields: dict[str, Any]) -> None:
            statuses.append(self.post(path, **fields))

        threads = [threading.Thread(target=ask, args=request) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        return statuses

    @property
    def own_bytes(self) -> int:
        """The resident bytes without the pool, which is counted as full."""
        resident = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return resident - POOL_BYTES


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    command = [sys.executable, "-m", "twostroke", "serve", "--port", "0", "--threads", "1"]
    process = subprocess.Popen(
        [*command, "--kv-memory", str(POOL_BYTES)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"127\.0\.0\.1:(\d+)", line) for line in process.stdout)))
        yield Served(process, int(found[1]))
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def long_texts() -> list[tuple[str, dict[str, Any]]]:
    """While they are tokenized one after the other, they take about 300 MB more than the bound allows."""
    letters, words = "é" * 3_000_000, "some words of a prompt " * 90_000
    chats = [("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": t}]}) for t in (letters, words)]
    lists = [("/tokenize", {"prompt": words[:1_500_000], "return_token_strs": True})]
    return [*chats, *lists, *chats]


def heavy_grammars() -> list[tuple[str, dict[str, Any]]]:
    """Patterns whose automata have thousands of states, each followed for a while by several completions."""
    shared = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "temperature": 1.5, "n": 4}
    return [("/v1/chat/completions", {**shared, "guided_regex": f".*a.{{{10 + i}}}b.*"}) for i in range(5)]


@pytest.mark.daily
@pytest.mark.skipif(not GLIBC, reason="another C library: what it keeps is not ours to bound")
def test_what_stays_after_a_load_is_what_the_plan_states(served: Served) -> None:
    assert served.at_once(long_texts()).count(200) == 5
    assert served.at_once(heavy_grammars()).count(200) >= 1
    deadline = time.monotonic() + WAIT_S
    while served.own_bytes >= PROCESS_BYTES and time.monotonic() < deadline:
        time.sleep(0.1)
    assert served.own_bytes < PROCESS_BYTES, f"{served.own_bytes / 1e6:,.0f} MB"
    assert served.post("/v1/completions", prompt="x", max_tokens=2) == 200


SCATTERED = """
import os, threading
from twostroke.assembly.machine.heap import keep_little, trim

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def work():
    held = [bytes(1000) for _ in range(100_000)]
    kept.extend(held[::1000])  # so that nothing at an arena's end goes back by itself

kept = []
keep_little()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
before = resident()
trim()
print(before - resident())
"""


@pytest.mark.slow
@pytest.mark.skipif(not GLIBC, reason="another C library: it has no such call")
def test_trimming_gives_back_what_lies_between_living_pieces() -> None:
    """100 MB in each of four threads, of which a thousandth stays. At least the last thread's memory comes back."""
    ended = subprocess.run(
        [sys.executable, "-c", SCATTERED], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert int(ended.stdout) > 50_000_000


@pytest.mark.slow
@pytest.mark.skipif(not GLIBC, reason="another C library: it has no such call")
def test_heavy_work_is_followed_by_trimming_and_a_burst_by_one() -> None:
    assert trim() in (True, False)  # the result tells whether there was anything to give back
    trimmer = Trimmer(quiet_s=0.2)
    for _ in range(50):
        trimmer.heavy_work_ended()
    deadline = time.monotonic() + WAIT_S
    while not trimmer.trims:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert trimmer.trims == 1
