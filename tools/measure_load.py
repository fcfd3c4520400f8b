"""Measures requests a second within objectives: Twostroke and other servers on the same file, in turn, on one machine.

    python -m tools.measure_load FILE.gguf --server llama.cpp=/path/to/llama-server --save docs/load.json
    python -m tools.measure_load FILE.gguf --server llama.cpp=... --busy          next to a program that computes

Each server is started, measured at growing rates over the named workloads of `bench serve`, and ended. A request counts
when its first token came within --ttft and 95% of its gaps lie within --itl. A server's figure for a workload is its
largest goodput over all rates. Rates grow until less than half of the requests count. Every server gets the same
requests, at the same times. The machine must be quiet.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from twostroke.lab.workload.synthetic import NAMED

OURS = "twostroke"
START_S = 600.0
END_S = 30.0
ENOUGH = 0.5
"""The share of requests within the objectives below which no higher rate is tried."""
BUSY = "while True: sum(range(10**6))"


def own_command(model: Path, port: int, asked: argparse.Namespace) -> list[str]:
    """Returns the command that starts Twostroke as a user does, with the defaults only."""
    return [sys.executable, "-m", "twostroke", "serve", str(model), "--port", str(port)]


def llama_command(program: str, model: Path, port: int, asked: argparse.Namespace) -> list[str]:
    """Returns the command of llama.cpp's server with a slot for each of --slots requests. The slots share one cache of
    --context tokens."""
    return [
        *(program, "-m", str(model), "--port", str(port), "-t", str(asked.threads), "-tb", str(asked.threads)),
        *("-np", str(asked.slots), "-c", str(asked.context), "--kv-unified"),
    ]


@contextmanager
def started(command: Sequence[str], port: int) -> Iterator[str]:
    """Start a server, and give its address once it answers. The server is ended afterwards. Raises RuntimeError when it
    does not start."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        url = f"http://127.0.0.1:{port}"
        try:
            latest_s = time.monotonic() + START_S
            while not _answers(url):
                if process.poll() is not None or time.monotonic() > latest_s:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read()[-2000:].decode(errors='replace')}")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def next_to_a_program(busy: bool) -> Iterator[None]:
    """When `busy`, run a program that computes on one core until the end of the block."""
    if not busy:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def load(url: str, workload: str, rate: float, asked: argparse.Namespace) -> dict[str, Any]:
    """Runs `bench serve` once. Returns the numbers of requests and of those within the objectives, the goodput, and
    percentiles of TTFT and ITL.

    Each rate has texts of its own, so that no prefix cache serves the prompts of the rate before.
    """
    command = [
        *(sys.executable, "-m", "twostroke", "bench", "serve", url, "--workload", workload, "--rate", str(rate)),
        *("--seed", str(asked.rates.index(rate)), "--requests", str(asked.requests), "--json"),
        *("--ttft", asked.ttft, "--itl", asked.itl),
        *("--tokens-scale", str(asked.tokens_scale), "--max-prompt", str(asked.max_prompt), "--timeout", "120s"),
        *(() if asked.tokenizer is None else ("--tokenizer", str(asked.tokenizer))),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise RuntimeError(f"bench serve failed at {url}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)["figures"]
    kept = ("requests", "good", "good_share", "goodput_per_s", "errors", "ttft", "itl")
    return {"rate": rate, **{name: found.get(name) for name in kept}}


def climbed(url: str, workload: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the runs at growing rates. The last run is the first in which most requests miss their objectives."""
    made = []
    for rate in asked.rates:
        made.append(run := load(url, workload, rate, asked))
        figures = f"{run['goodput_per_s']:.2f}/s good, {run['good_share']:.0%} of the requests"
        print(f"  {workload} at {rate:g}/s: {figures}", file=sys.stderr, flush=True)
        if run["good_share"] < ENOUGH:
            break
    return made


def best(runs: Sequence[Mapping[str, Any]]) -> float:
    """Returns the largest goodput of the runs, in requests a second."""
    return max(run["goodput_per_s"] for run in runs)


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """Measures all servers over all workloads."""
    commands = {OURS: own_command(asked.model, asked.port, asked)}
    for name, program in asked.server:
        commands[name] = llama_command(program, asked.model, asked.port, asked)
    found: dict[str, dict[str, Any]] = {}
    for name, command in commands.items():
        print(f"{name}: {' '.join(command)}", file=sys.stderr, flush=True)
        with ExitStack() as stack:
            url = stack.enter_context(started(command, asked.port))
            stack.enter_context(next_to_a_program(asked.busy))
            found[name] = {workload: climbed(url, workload, asked) for workload in asked.workload}
    return {
        "model": asked.model.name,
        "busy": asked.busy,
        "objectives": {"ttft": asked.ttft, "itl": asked.itl},
        "requests": asked.requests,
        "tokens_scale": asked.tokens_scale,
        "servers": found,
    }


def table(result: Mapping[str, Any]) -> str:
    """Returns the best goodput of each server for each workload, as Markdown. The last column is our goodput divided by
    that of the best other server."""
    servers = result["servers"]
    others = [name for name in servers if name != OURS]
    lines = [f"| workload | {' | '.join(servers)} | ours by the best other |"]
    lines.append("| --- |" + " ---: |" * (len(servers) + 1))
    for workload in servers[OURS]:
        figures = {name: best(servers[name][workload]) for name in servers}
        other = max((figures[name] for name in others), default=0.0)
        share = f"{figures[OURS] / other:.1f}" if other else ""
        cells = " | ".join(f"{figures[name]:.2f}" for name in servers)
        lines.append(f"| {workload} | {cells} | {share} |")
    return "\n".join(lines)


def free_port() -> int:
    """Returns a port on which no program listens now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def pair(text: str) -> tuple[str, str]:
    """Parses NAME=PROGRAM. Raises ArgumentTypeError for other texts."""
    name, found, program = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PROGRAM")
    return name, program


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--server", type=pair, nargs="+", default=(), metavar="NAME=PROGRAM")
    parser.add_argument("--workload", nargs="+", choices=list(NAMED), default=list(NAMED))
    parser.add_argument("--rates", type=float, nargs="+", default=(0.5, 1.0, 2.0, 4.0, 8.0))
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--tokens-scale", type=float, default=1.0)
    parser.add_argument("--max-prompt", type=int, default=6000)
    parser.add_argument("--ttft", default="4s")
    parser.add_argument("--itl", default="300ms")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--port", type=int, default=free_port())
    parser.add_argument("--busy", action="store_true", help="one core computes something else meanwhile")
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    result = measured(asked)
    if asked.save is not None:
        asked.save.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
