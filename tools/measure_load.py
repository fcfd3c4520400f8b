"""Measures requests a second within objectives: Twostroke and other servers on the same file, in turn, on one machine.

    twostroke bench peers install openvino vllm                                   once
    python -m tools.measure_load FILE.gguf --server llama.cpp=/path/to/llama-server --save docs/load.json
    python -m tools.measure_load FILE.gguf --server llama.cpp=... --peer openvino vllm
    python -m tools.measure_load FILE.gguf --server llama.cpp=... --busy          next to a program that computes
    python -m tools.measure_load FILE.gguf --peer openvino vllm --try             does each start and answer?

Each server is started, measured at growing rates over the named workloads of `bench serve`, and ended. A request counts
when its first token came within --ttft and 95% of its gaps lie within --itl. A server's figure for a workload is its
largest goodput over all rates. Rates grow until less than half of the requests count. Every server gets the same
requests, at the same times. The machine must be quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
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

from tools.load_peers.contenders import OPENVINO, OURS, VLLM, Contender, llama_cpp, ours, peer

from twostroke.assembly.settings.env import process_environment
from twostroke.lab.workload.synthetic import NAMED

START_S = 600.0
END_S = 30.0
ENOUGH = 0.5
"""The share of requests within the objectives below which no higher rate is tried."""
BUSY = "while True: sum(range(10**6))"


@contextmanager
def started(contender: Contender, port: int) -> Iterator[str]:
    """Start a server, and give its address once it answers. The server and its processes are ended afterwards. Raises
    RuntimeError when it does not start."""
    command, variables = contender.command, {**process_environment(), **contender.variables}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=variables, start_new_session=True)
        url = f"http://127.0.0.1:{port}"
        try:
            latest_s = time.monotonic() + START_S
            while not _answers(url):
                if process.poll() is not None or time.monotonic() > latest_s:
                    log.seek(0)
                    said = log.read()[-2000:].decode(errors="replace")
                    raise RuntimeError(f"{contender.name} did not start: {said}")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            with contextlib.suppress(ProcessLookupError):  # its own session, so nobody else's processes
                os.killpg(process.pid, signal.SIGKILL)
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


def contenders(asked: argparse.Namespace) -> list[Contender]:
    """Returns the servers that are measured, Twostroke first."""
    others = [llama_cpp(name, program, asked) for name, program in asked.server]
    return [ours(asked.model, asked.port), *others, *(peer(name, asked) for name in asked.peer)]


def tried(asked: argparse.Namespace) -> str:
    """Starts each server and sends it two short requests. Returns what came of it, a line for each."""
    short = argparse.Namespace(**{**vars(asked), "requests": 2, "rates": [1.0], "tokens_scale": 0.05})
    lines = []
    for contender in contenders(asked):
        began_s = time.monotonic()
        with started(contender, asked.port) as url:
            start_s = time.monotonic() - began_s
            run = load(url, asked.workload[0], 1.0, short)
        lines.append(
            f"{contender.name}: answers after {start_s:.1f} s; {run['requests']} requests, errors {run['errors']}"
        )
    return "\n".join(lines)


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """Measures all servers over all workloads."""
    found: dict[str, dict[str, Any]] = {}
    chosen = contenders(asked)
    for contender in chosen:
        print(f"{contender.name}: {' '.join(contender.command)}", file=sys.stderr, flush=True)
        with ExitStack() as stack:
            url = stack.enter_context(started(contender, asked.port))
            stack.enter_context(next_to_a_program(asked.busy))
            found[contender.name] = {workload: climbed(url, workload, asked) for workload in asked.workload}
    return {
        "model": asked.model.name,
        "busy": asked.busy,
        "objectives": {"ttft": asked.ttft, "itl": asked.itl},
        "requests": asked.requests,
        "tokens_scale": asked.tokens_scale,
        "computes": {contender.name: contender.computes for contender in chosen},
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
    parser.add_argument("--peer", nargs="+", choices=(OPENVINO, VLLM), default=(), help="peers that are installed")
    parser.add_argument("--folder", type=Path, help="a checkpoint folder for peers that read no GGUF file")
    parser.add_argument("--try", dest="only_try", action="store_true", help="two short requests to each server")
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
    if asked.only_try:
        print(tried(asked))
        return
    result = measured(asked)
    if asked.save is not None:
        asked.save.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the server that runs is ended, too
    main()
