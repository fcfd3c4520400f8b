"""Starts servers, fronts and replicas as processes, and sends requests to them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

TWOSTROKE = (sys.executable, "-P", "-m", "twostroke")
END_S, ANSWER_S, START_S = 30.0, 300.0, 300.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(eq=False)
class Stream:
    """One answer as its client saw it. begin_s: the time of the request, by time.perf_counter. name: the answer's id.
    times_s: the seconds from begin_s to each piece with text."""

    begin_s: float
    name: str = ""
    text: str = ""
    times_s: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    error: str = ""


class Server:
    """A process that serves HTTP. facts: the values that it printed at its start."""

    def __init__(self, process: subprocess.Popen[str], facts: dict[str, Any]) -> None:
        self.process, self.url = process, str(facts["url"])

    def stream(self, prompt: str | Sequence[int], tokens: int, goes_on: Callable[[], bool] = lambda: True) -> Stream:
        """Ask for a greedy answer of `tokens` tokens. goes_on: a function that is called at each piece; when it returns
        False, the client hangs up."""
        body: dict[str, Any] = {"model": "served", "prompt": prompt, "max_tokens": tokens, "temperature": 0.0}
        body |= {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        headers = {"Content-Type": "application/json"}
        found = Stream(time.perf_counter())
        asked = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(), headers)
        with _opened(asked) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    self._read(json.loads(line[6:]), time.perf_counter() - found.begin_s, found)
                    if not goes_on():
                        break
        return found

    def _read(self, chunk: dict[str, Any], now_s: float, found: Stream) -> None:
        if "error" in chunk:
            found.error = str(chunk["error"])
        found.name = chunk.get("id", found.name)
        for choice in chunk.get("choices", ()):
            if choice["text"]:
                found.text += choice["text"]
                found.times_s.append(now_s)
        details = (chunk.get("usage") or {}).get("prompt_tokens_details") or {}
        found.cached_tokens = details.get("cached_tokens") or found.cached_tokens

    def parts_s(self, name: str) -> dict[str, float]:
        """Returns the seconds of each part of an ended answer, as the server explains them. name: the answer's id; the
        answer has one completion."""
        with urllib.request.urlopen(f"{self.url}/v1/requests/{name}/explain", timeout=ANSWER_S) as answer:
            found: dict[str, float] = json.load(answer)["completions"][0]["parts_s"]
        return found

    def replicas(self) -> list[dict[str, Any]]:
        """Returns the replicas as the live view shows them."""
        with urllib.request.urlopen(f"{self.url}/v1/engine/steps?frames=1", timeout=ANSWER_S) as answer:
            frame = json.loads(answer.read().decode().partition("data: ")[2].partition("\n")[0])
        found: list[dict[str, Any]] = frame["replicas"]
        return found

    def wait_for_replicas(self, count: int) -> None:
        """Wait until `count` replicas are ready. Raises SystemExit after START_S seconds."""
        until_s = time.monotonic() + START_S
        while sum(each["state"] == "ready" for each in self.replicas()) < count:
            if time.monotonic() > until_s:
                raise SystemExit(f"{count} replicas were not ready within {START_S:g} s")
            time.sleep(0.2)

    def kill_a_replica(self) -> bool:
        """End a replica that has a stream with SIGKILL. Returns whether there was such a replica."""
        name = next((str(each["name"]) for each in self.replicas() if each["running"]), "")
        for pid in children(self.process.pid):
            with contextlib.suppress(OSError):
                if name and name in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False


def _opened(asked: urllib.request.Request) -> Any:
    """Open a request. Raises SystemExit with the server's message when the server refuses the request."""
    try:
        return urllib.request.urlopen(asked, timeout=ANSWER_S)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"the server refuses a request: {error.read().decode()[:300]}") from error


def children(pid: int) -> list[int]:
    """Returns the ids of the child processes of a process."""
    found = [(task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(child) for several in found for child in several]


def processor_s(pid: int) -> float:
    """Returns the seconds of processor time that a process has used, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@contextmanager
def started(words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start a `twostroke` process. Gives the process and the facts that it prints, and ends it after the block."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*TWOSTROKE, *words, "--json"], stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield process, _facts(process, words, errors)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _facts(process: subprocess.Popen[str], words: Sequence[str], errors: IO[str]) -> dict[str, Any]:
    lines = ""
    while line := process.stdout.readline() if process.stdout is not None else "":
        lines += line
        with contextlib.suppress(ValueError):
            facts: dict[str, Any] = json.loads(lines)
            return facts
    process.wait(END_S)
    errors.seek(0)
    raise SystemExit(f"`twostroke {' '.join(words)}` has ended: {last_lines(errors.read())}")


def last_lines(text: str, most: int = 3) -> str:
    """Returns the last lines of a program's output, joined into one line."""
    return " / ".join(text.strip().splitlines()[-most:]) or "it printed no error"


@contextmanager
def serving(model: str, *words: str, replicas: int = 0) -> Iterator[Server]:
    """Run `twostroke serve` with one thread for each process. replicas: their number, or 0 for a server without a
    front."""
    command = ["serve", model, "--threads", "1", "--port", "0", "--served-name", "served", *words]
    command += ["--replicas", str(replicas)] if replicas else []
    with started(command) as (process, facts):
        server = Server(process, facts)
        if replicas:
            server.wait_for_replicas(replicas)
        yield server


@contextmanager
def replica(model: str, name: str, role: str, *words: str) -> Iterator[str]:
    """Run `twostroke replica` with one thread. Gives its address, HOST:PORT."""
    command = ["replica", model, "--threads", "1", "--listen", "127.0.0.1:0", "--name", name, "--role", role, *words]
    with started(command) as (_, facts):
        yield str(facts["listen"])


@contextmanager
def front(model: str, addresses: Sequence[str]) -> Iterator[Server]:
    """Run `twostroke front` before the replicas at these addresses. Gives the server when all replicas are ready."""
    command = ["front", model, "--replicas", ",".join(addresses), "--port", "0", "--served-name", "served"]
    with started(command) as (process, facts):
        server = Server(process, facts)
        server.wait_for_replicas(len(addresses))
        yield server


def bench_serve(server: Server, *words: str) -> dict[str, Any]:
    """Run `twostroke bench serve` on a server. Returns its report. Raises SystemExit when it fails."""
    command = [*TWOSTROKE, "bench", "serve", server.url, "--json", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"`{' '.join(command[3:])}` has failed: {last_lines(ended.stderr)}")
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def random_checkpoint(shape: str) -> str:
    """Returns the folder of a checkpoint with random weights, which is written when there is none."""
    from twostroke.assembly.settings.env import read_machine
    from twostroke.lab.bench.checkpoints import shape_folder, write_checkpoint

    return str(write_checkpoint(shape, shape_folder(shape, read_machine().cache_folder)))
