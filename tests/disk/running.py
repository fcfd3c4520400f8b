"""`twostroke serve` as a process that keeps pages on disk, and what a client sees of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.server_process import SOURCE, started

PATIENCE_S = 60.0


ALWAYS_READ = """
from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.disk import fetching

DiskPrice.worth_reading = lambda *_: True
fetching.PATIENCE_S = 600.0
"""


def always_read(folder: Path) -> str:
    """A PYTHONPATH with which processes always read from the disk, however long that takes on a busy machine."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ALWAYS_READ)
    return f"{folder}{os.pathsep}{SOURCE}"


class Served:
    """A server."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON of an answer."""
        found = httpx2.post(self.url + path, json=body, timeout=120)
        assert found.status_code == 200, found.text
        return found.json()

    def answer(self, messages: list[dict[str, str]], **fields: Any) -> dict[str, Any]:
        """One answer of a conversation: its text, its bits, its prompt's tokens, and those that were cached."""
        body = {"model": "spark", "messages": messages, "max_tokens": 24, "temperature": 1.0, "seed": 3}
        made = self.post("/v1/chat/completions", {**body, "logprobs": True, "top_logprobs": 2, **fields})
        (choice,), usage = made["choices"], made["usage"]
        return {
            "id": made["id"],
            "text": choice["message"]["content"],
            "bits": choice["logprobs"]["content"],
            "prompt": usage["prompt_tokens"],
            "cached": usage["prompt_tokens_details"]["cached_tokens"],
        }

    def metric(self, name: str) -> float:
        """A number of /metrics."""
        found = re.search(rf"^{name}(?:_total)? (\S+)$", httpx2.get(f"{self.url}/metrics").text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def wait(self, true: Callable[[], bool]) -> None:
        """Waits until the condition is true."""
        until_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until_s, "it did not come"
            time.sleep(0.02)

    def end(self, kind: signal.Signals) -> None:
        """Ends the process by a signal and waits for it."""
        self.process.send_signal(kind)
        self.process.wait(PATIENCE_S)


@contextmanager
def served(cache: Path, *words: str, model: str = "spark", **environment: str) -> Iterator[Served]:
    """A server that runs until the end of the block, where SIGTERM ends it."""
    asked = (model, "--cache", str(cache), "--kv-memory", "64MB", *words)
    with started(*asked, environment=environment) as (process, facts):
        yield Served(process, facts["url"])
