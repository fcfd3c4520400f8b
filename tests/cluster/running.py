"""`twostroke serve MODEL --replicas N` as a process, and a client for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI

from tests.patience import PATIENCE_S
from tests.server_process import started


class Running:
    """A server with replicas, and a client for it."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url
        self.client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
        self.name = self.client.models.list().data[0].id

    def replicas(self) -> list[int]:
        """The process ids of the replicas."""
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{self.process.pid}/task")
            found = [child for task in path.iterdir() for child in (task / "children").read_text().split()]
            return [int(child) for child in found if "replica" in Path(f"/proc/{child}/cmdline").read_text()]
        return []

    def feed(self) -> list[dict[str, Any]]:
        """The replicas as the live view shows them."""
        found = httpx2.get(f"{self.url}/v1/engine/steps", params={"frames": 1}, timeout=PATIENCE_S).text
        frame = json.loads(found.partition("data: ")[2].partition("\n")[0])
        replicas: list[dict[str, Any]] = frame["replicas"]
        return replicas

    def kill_one_that_computes(self) -> str:
        """Kills a replica that computes, and returns its name, or an empty text where none computes."""
        name = next((str(each["name"]) for each in self.feed() if each["running"]), "")
        for pid in self.replicas():
            with contextlib.suppress(OSError):
                if name and name in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    os.kill(pid, signal.SIGKILL)
        return name

    def answer(self, fields: dict[str, Any], piece: Callable[[], None] = lambda: None) -> list[Any]:
        """The pieces of a stream for each choice: text, log probabilities, finish reason. piece: called for each
        piece."""
        messages: Any = [{"role": "user", "content": "Write three sentences about prefill and decode."}]
        made: dict[int, list[Any]] = {}
        with self.client.chat.completions.create(
            model=self.name, messages=messages, stream=True, **{"max_tokens": 160, **fields}
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


@contextmanager
def serving(replicas: int, *words: str, model: str = "spark") -> Iterator[Running]:
    """A server that runs until the end of the block."""
    with started(model, "--replicas", str(replicas), "--kv-memory", "64MB", *words) as (process, facts):
        yield Running(process, facts["url"])
