"""`twostroke serve` as a process that runs until the end of a block."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.patience import PATIENCE_S
from twostroke.assembly.settings.env import process_environment

SOURCE = Path(__file__).parents[1] / "src"

Started = tuple[subprocess.Popen[str], dict[str, Any]]
"""A process, and what it printed as JSON when it was ready."""


@contextmanager
def started(
    *words: str, errors: int | IO[str] = subprocess.DEVNULL, environment: dict[str, str] | None = None
) -> Iterator[Started]:
    """`twostroke serve` with these words, one thread and any port. SIGTERM ends it. errors: its standard error."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "twostroke", "serve", "--threads", "1", "--port", "0", "--json", *words],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=process_environment() | {"PYTHONPATH": str(SOURCE), **(environment or {})},
    )
    try:
        assert process.stdout is not None
        lines, facts = "", None
        while facts is None:
            line = process.stdout.readline()
            assert line, f"the server ended: {'' if isinstance(errors, int) else Path(errors.name).read_text()}"
            lines += line
            with contextlib.suppress(ValueError):
                facts = json.loads(lines)
        yield process, facts
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
