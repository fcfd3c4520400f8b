"""A server of several models as a process, with the openai package as its client."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI

from tests.serve.harness import WAIT_S, wait_until
from tests.server_process import started

HELLO: Any = [{"role": "user", "content": "What is prefill?"}]


class Several:
    """url: the address of the server. log: the file for its standard error."""

    def __init__(self, process: subprocess.Popen[str], facts: dict[str, Any], log: Path) -> None:
        self.process, self.url, self.facts, self.log = process, str(facts["url"]), facts, log
        self.client = OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=WAIT_S)
        self.http = httpx2.Client(base_url=self.url, timeout=WAIT_S)

    def states(self) -> dict[str, str]:
        """The state of each model."""
        found: dict[str, str] = self.http.get("/health").json()["models"]
        return found

    def wait_for(self, name: str, state: str) -> None:
        """Waits until a model is in this state."""
        wait_until(lambda: self.states()[name] == state, f"{name} is {state}")

    def process_of(self, name: str) -> int | None:
        """The process id of a model."""
        for path in Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in (path / "children").read_text().split():
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
                    if "replica" in words and words[words.index("--name") + 1] == name:
                        return int(child)
        return None

    def kill(self, name: str) -> None:
        """Kills a model's process."""
        pid = self.process_of(name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def ended(self, name: str) -> Any:
        """Waits until a batch is over, and returns it."""
        ends = ("completed", "failed", "expired", "cancelled")
        wait_until(lambda: self.client.batches.retrieve(name).status in ends, "the batch's end")
        return self.client.batches.retrieve(name)

    def chat(self, model: str, **fields: Any) -> str:
        """The answer of a model to one question, with temperature 0."""
        fields = {"max_tokens": 12, "temperature": 0, **fields}
        made = self.client.chat.completions.create(model=model, messages=HELLO, **fields)
        return str(made.choices[0].message.content)


@contextmanager
def several(log: Path, *words: str, **environment: str) -> Iterator[Several]:
    """Runs `twostroke serve` with these words until the end of the block."""
    with log.open("w") as errors, started(*words, errors=errors, environment=environment) as (process, facts):
        yield Several(process, facts, log)
