"""Servers and streams for the measurements of everyday use."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twostroke.assembly.settings.env import process_environment

SOURCE = Path(__file__).parents[2] / "src"
WAIT_S = 600.0
LOOK_EVERY_S = 0.005
COMMAND = [sys.executable, "-m", "twostroke"]


def home(folder: Path) -> dict[str, str]:
    """Returns the variables of a process with caches of its own below `folder`."""
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / "config"), "HF_HUB_OFFLINE": "1"}
    return {**process_environment(), **own, "PYTHONPATH": str(SOURCE)}


class Server:
    """A server that runs. url: its address."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url

    def open(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Sends a request, and returns the answer as it comes."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        return urllib.request.urlopen(asked, timeout=WAIT_S)

    def json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Returns a whole answer."""
        with self.open(path, body) as answer:
            return json.load(answer)

    def times(self, path: str, body: dict[str, Any]) -> list[float]:
        """Returns the seconds from the request to each line of the streamed answer that holds data. Comments, with
        which a stream tells how a model loads, are left out."""
        begin_s, found = time.perf_counter(), list[float]()
        with self.open(path, {**body, "stream": True}) as answer:
            for line in answer:
                if line.startswith((b"data: {", b"{")):
                    found.append(time.perf_counter() - begin_s)
        return found

    def chat(self, model: str, text: str, tokens: int = 1) -> list[float]:
        """Returns the times of a streamed chat. The first line of the stream has the role and comes with the first
        token."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": tokens}
        return self.times("/v1/chat/completions", {**body, "temperature": 0, "ignore_eos": True})

    def wait_for(self, model: str, state: str) -> float:
        """Waits until a model of several has this state, and returns the seconds."""
        begin_s = time.perf_counter()
        while self.json("/health")["models"].get(model) != state:
            time.sleep(LOOK_EVERY_S)
            if time.perf_counter() - begin_s > WAIT_S:
                raise TimeoutError(f"{model} is not {state}")
        return time.perf_counter() - begin_s


@contextlib.contextmanager
def served(folder: Path, *words: str) -> Iterator[Server]:
    """Runs `twostroke serve` with these words until the end of the block, where SIGTERM ends it."""
    call = [*COMMAND, "serve", *words, "--port", "0", "--json"]
    process = subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=home(folder), cwd=folder
    )
    try:
        yield Server(process, _url(process))
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()


def _url(process: subprocess.Popen[str]) -> str:
    text = ""
    for line in process.stdout or ():
        text += line
        with contextlib.suppress(ValueError):
            return str(json.loads(text)["url"])
    raise RuntimeError("the server ended before it was ready")


def first_byte_s(folder: Path, *words: str) -> float:
    """Returns the seconds from the start of a command to its first byte of output. The command must succeed."""
    begin_s = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home(folder)
    )
    assert process.stdout is not None
    got = os.read(process.stdout.fileno(), 1)
    first_s = time.perf_counter() - begin_s
    _, errors = process.communicate()
    if process.returncode or not got:
        raise RuntimeError(f"{' '.join(words)}: {errors.decode()}")
    return first_s
