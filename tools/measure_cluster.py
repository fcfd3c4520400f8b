"""What a front costs, and how long a stream pauses when its replica is killed. For a quiet machine.

    python -m tools.measure_cluster --model spark --pairs 10 --kills 10 --json

Alone and behind a front with one replica are measured in turn, with one thread each. A pause is the longest time
between two pieces of a stream whose replica is ended with SIGKILL in its middle, beside the usual longest time.

Knows: the command line, HTTP, Linux's list of child processes.
Must not know: the package's insides.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROMPT = "Write about prefill and decode. " * 8


class Server:
    """`twostroke serve`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url

    def replicas(self) -> list[int]:
        """Process ids."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return [child for child in found if b"\0replica\0" in Path(f"/proc/{child}/cmdline").read_bytes()]

    def times(self, tokens: int) -> list[float]:
        """Seconds from the request to each piece of its stream."""
        body = {"model": "served", "prompt": PROMPT, "max_tokens": tokens, "stream": True, "ignore_eos": True}
        begin_s, found = time.perf_counter(), []
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    found.append(time.perf_counter() - begin_s)
        return found


@contextmanager
def serving(model: str, replicas: int) -> Iterator[Server]:
    """replicas: 0 for a server without a front."""
    words = [
        "serve",
        model,
        "--threads",
        "1",
        "--port",
        "0",
        "--kv-memory",
        "256MB",
        "--served-name",
        "served",
        "--json",
    ]
    words += ["--replicas", str(replicas)] if replicas else []
    command = [sys.executable, "-P", "-m", "twostroke", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        lines, url = "", ""
        while not url:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line:
                raise SystemExit(f"`{' '.join(command)}` has ended")
            lines += line
            with contextlib.suppress(ValueError):
                url = json.loads(lines)["url"]
        server = Server(process, url)
        while replicas and len(server.replicas()) < replicas:
            time.sleep(0.1)
        server.times(4)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def price(model: str, pairs: int, tokens: int) -> dict[str, float]:
    """Medians, milliseconds."""
    found: dict[str, list[list[float]]] = {"alone": [], "front": []}
    with serving(model, 0) as alone, serving(model, 1) as front:
        for _ in range(pairs):
            found["alone"].append(alone.times(tokens))
            found["front"].append(front.times(tokens))
    made: dict[str, float] = {}
    for name, runs in found.items():
        made[f"{name}_ttft_ms"] = 1e3 * statistics.median(run[0] for run in runs)
        made[f"{name}_itl_ms"] = 1e3 * statistics.median(gap for run in runs for gap in gaps_of(run))
    made["price_ttft_ms"] = made["front_ttft_ms"] - made["alone_ttft_ms"]
    made["price_itl_ms"] = made["front_itl_ms"] - made["alone_itl_ms"]
    return made


def pauses(model: str, kills: int, tokens: int) -> dict[str, Any]:
    """Each of two replicas is killed in turn. About one kill in two meets the stream: the longer half counts."""
    usual, paused = [], []
    with serving(model, 2) as server:
        for number in range(2 * kills):
            whole = server.times(tokens)
            usual.append(max(gaps_of(whole)))
            victims = server.replicas()
            killer = threading.Timer(whole[len(whole) // 2], os.kill, (victims[number % 2], signal.SIGKILL))
            killer.start()
            paused.append(max(gaps_of(server.times(tokens))))
            killer.join()
            while len(server.replicas()) < 2:
                time.sleep(0.1)
            time.sleep(3)  # it loads, and the front greets it
    moved = sorted(paused)[kills:]
    return {
        "usual_longest_gap_ms": 1e3 * statistics.median(usual),
        "pause_median_ms": 1e3 * statistics.median(moved),
        "pause_most_ms": 1e3 * moved[-1],
        "kills": 2 * kills,
    }


def gaps_of(times: list[float]) -> list[float]:
    """The seconds between pieces."""
    return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="spark")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = {**price(asked.model, asked.pairs, asked.tokens), **pauses(asked.model, asked.kills, asked.tokens)}
    if asked.json:
        print(json.dumps({"model": asked.model, **found}))
    else:
        for name, value in found.items():
            print(f"{name:24} {value:10.2f}")


if __name__ == "__main__":
    main()
