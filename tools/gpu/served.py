"""Runs `twostroke serve` as a user does, on a checkpoint that is made on the machine. Measures the time from the start
to the first token, streams and prompts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.gpu.checkpoint_there import write_any_checkpoint
from tools.gpu.gguf_there import write_gguf
from tools.gpu.outside import TAIL, run

Row = dict[str, Any]
Clock = Callable[[], float]
START_S = 60.0
"""Seconds within which a server must answer."""
REQUEST_S = 30.0
FLAGS = ("--speculate", "off", "--context", "4096", "--served-name", "any")
"""Options of the server. Speculation is off: random weights repeat themselves or never do, and neither tells anything
about a real model."""


@dataclass(frozen=True)
class Served:
    """One model to serve. flags: options for the command line. streams: the number of streams. prompt, output: tokens
    of a request. mix: the mix of the GGUF file that is made; empty for a checkpoint of bf16."""

    name: str
    config: dict[str, Any]
    flags: tuple[str, ...]
    streams: int = 64
    prompt: int = 2048
    output: int = 128
    environment: tuple[tuple[str, str], ...] = ()
    mix: str = ""


@dataclass
class Answer:
    """One stream: when each piece came, and how many tokens the server counted."""

    asked_s: float
    pieces_s: list[float] = field(default_factory=list)
    tokens: int = 0
    request_id: str = ""
    problem: str = ""

    @property
    def ttft_s(self) -> float:
        return self.pieces_s[0] - self.asked_s

    @property
    def tokens_per_s(self) -> float:
        """The tokens a second after the first token."""
        return (self.tokens - 1) / (self.pieces_s[-1] - self.pieces_s[0])


def serve_times(
    served: Sequence[Served], folder: Path, has_time: Callable[[], bool], clock: Clock = time.perf_counter
) -> Iterator[Row]:
    """Yields rows for each model: the seconds to make it, pack it and start the server, and the streams."""
    for each in served:
        if not has_time():
            yield {"what": f"served {each.name}", "not_run": "no time left"}
            continue
        yield from _one(each, folder, clock, has_time)


def _one(served: Served, folder: Path, clock: Clock, has_time: Callable[[], bool]) -> Iterator[Row]:
    name = f"served {served.name}"
    before = clock()
    folder.mkdir(parents=True, exist_ok=True)
    shape = served.name.split()[0]
    if served.mix:
        checkpoint = write_gguf(served.config, served.mix, folder / f"{shape}-{served.mix}.gguf")
    else:
        checkpoint = write_any_checkpoint(served.config, folder / shape)
    yield {"what": f"{name}: checkpoint written", "seconds": clock() - before}
    for words in ("first start to first token, packing", "start to first token, packed file"):
        if not has_time():
            yield {"what": f"{name}: {words}", "not_run": "no time left"}
            return
        server = Server(served, checkpoint, folder / "cache", clock)
        try:
            yield {"what": f"{name}: {words}", "seconds": server.first_token_s(), "found": server.said()}
            if words.endswith("packed file"):
                yield from _load(served, server, name, has_time)
        except ServerFailed as error:
            yield {"case": f"{name}: {words}", "failed": str(error)}
            return
        finally:
            server.end()


class ServerFailed(Exception):
    """The server did not start, or an answer has no tokens."""


class Server:
    """A process of `twostroke serve`."""

    def __init__(self, served: Served, checkpoint: Path, cache: Path, clock: Clock) -> None:
        self.clock, self.started_s = clock, clock()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = cache.parent / f"serve-{self.port}.log"
        flags = ("serve", str(checkpoint), "--port", str(self.port), "--cache", str(cache), *FLAGS, *served.flags)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "twostroke", *flags),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(served.environment),
            )

    def said(self) -> str:
        """Returns the first lines of the server's log, which are about the model and the cache."""
        return "; ".join(self.log.read_text().splitlines()[:3])

    def first_token_s(self) -> float:
        """Returns the seconds from the command to the first token of a request, sent as soon as the port is open."""
        while True:
            if self.process.poll() is not None or self.clock() - self.started_s > START_S:
                raise ServerFailed(f"the server is not there: {self.log.read_text()[-TAIL:]}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1.0):
                    break
            except OSError:
                time.sleep(0.02)
        (answer,) = self.ask([{"prompt": [5] * 8, "max_tokens": 2}])
        return answer.pieces_s[0] - self.started_s

    def ask(self, bodies: Sequence[dict[str, Any]]) -> list[Answer]:
        """Returns the answers to requests that are sent together. Raises ServerFailed when an answer has no tokens."""

        async def all_of_them() -> list[Answer]:
            return await asyncio.gather(*(_stream(self.port, body, self.clock) for body in bodies))

        answers = asyncio.run(asyncio.wait_for(all_of_them(), REQUEST_S))
        for answer in answers:
            if answer.problem or not answer.pieces_s:
                raise ServerFailed(f"an answer without tokens: {answer.problem[-TAIL:]}")
        return answers

    def end(self) -> None:
        """End the server with SIGTERM, and with SIGKILL after 10 seconds."""
        self.process.terminate()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def _stream(port: int, body: dict[str, Any], clock: Clock) -> Answer:
    """Sends POST /v1/completions as a stream, by hand, so that the time includes no client's own time."""
    whole = {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.0}
    content = json.dumps({"model": "any", **whole, **body}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    answer = Answer(clock())
    headers = ("Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(content)}")
    lines = ("POST /v1/completions HTTP/1.1", *headers, "Connection: close", "", "")
    writer.write("\r\n".join(lines).encode() + content)
    other = []
    async for raw in reader:
        line = raw.decode(errors="replace").strip()
        if not line.startswith("data: {"):
            other.append(line)
            continue
        told = json.loads(line[6:])
        if told.get("choices"):
            answer.pieces_s.append(clock())
            answer.request_id = told["id"]
        elif told.get("usage"):
            answer.tokens = told["usage"]["completion_tokens"]
        else:
            answer.problem = line
    writer.close()
    if not answer.pieces_s:
        answer.problem = answer.problem or " ".join(other)
    return answer


def _load(served: Served, server: Server, name: str, has_time: Callable[[], bool]) -> Iterator[Row]:
    output = served.output
    ways: tuple[tuple[str, Row], ...] = (("greedy", {}), ("top-p 0.95", {"temperature": 0.8, "top_p": 0.95, "seed": 1}))
    server.ask([{"prompt": [9] * 16, "max_tokens": 8}])
    for words, way in ways:
        (answer,) = server.ask([{"prompt": list(range(10, 42)), "max_tokens": output, **way}])
        yield {"what": f"{name}: 1 stream, {words}", "rows_per_s": answer.tokens_per_s, "seconds": answer.ttft_s}
        if words == "greedy":
            yield _explained(server, answer, name)
    for words, way in ways:
        if not has_time():
            return
        bodies = [
            {"prompt": [10 + (index * 37 + place) % 200 for place in range(32)], "max_tokens": output, **way}
            for index in range(served.streams)
        ]
        answers = server.ask(bodies)
        yield _together(answers, f"{name}: {served.streams} streams, {words}")
    taken = []
    for index in range(3):
        prompt = [10 + (index * 53 + place * (place % 7)) % 240 for place in range(served.prompt)]
        (answer,) = server.ask([{"prompt": prompt, "max_tokens": 2}])
        taken.append(answer.ttft_s)
    seconds = statistics.median(taken)
    yield {
        "what": f"{name}: first token of {served.prompt}",
        "seconds": seconds,
        "rows_per_s": served.prompt / seconds,
    }


def _together(answers: list[Answer], what: str) -> Row:
    """Returns the tokens a second of all answers in the middle half of the time, when all of them run, and the median
    TTFT."""
    begin, end = min(each.asked_s for each in answers), max(each.pieces_s[-1] for each in answers)
    first, last = begin + (end - begin) / 4, end - (end - begin) / 4
    pieces = sum(first < moment <= last for each in answers for moment in each.pieces_s)
    whole = sum(each.tokens for each in answers) / (end - begin)
    row = {"what": f"{what} (all of it {whole:,.0f} tok/s)", "rows_per_s": pieces / (last - first)}
    return row | {"seconds": statistics.median(each.ttft_s for each in answers)}


def _explained(server: Server, answer: Answer, name: str) -> Row:
    """Returns the time in which neither the model nor sampling ran, as `explain` reports it."""
    url = f"http://127.0.0.1:{server.port}"
    code, said = run((sys.executable, "-m", "twostroke", "explain", answer.request_id, "--url", url, "--json"), 20.0)
    what = f"{name}: host's part of 1 stream"
    try:
        told = json.loads(said[said.index("{") :])["completions"][0]
    except (ValueError, KeyError, IndexError):
        return {"what": what, "missing": f"explain ended with {code}: {said[-TAIL:]}"}
    gap, whole = told["parts_s"]["host_gap_s"], told["e2e_s"]
    words = f"{1e6 * gap / told['num_output_tokens']:.0f} us a token, {100 * gap / whole:.0f}% of {1e3 * whole:.0f} ms"
    return {"what": what, "found": words}
