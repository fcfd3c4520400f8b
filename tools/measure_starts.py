"""Measures how long a server takes from its process to its first token, in turn with other servers and reading the
file.

    python -m tools.measure_starts MODEL --server llama.cpp=/path/to/llama-server --json
    python -m tools.measure_starts MODEL --rounds 7 --only warm "first, in memory"
    python -m tools.measure_starts MODEL --drop-all         as root: libraries and Python's modules are cold, too

MODEL is a GGUF file or a folder. `first` finds an empty cache folder and packs; `cold` and `warm` find the packed file.
Cold files are dropped from the system's memory before the process begins. `read` reads a file once, in order. Seconds
by the clock need a quiet machine. Processor seconds of all processes of a server, until its first token, do not.
Python's modules are compiled before the rounds, as an installation has them: without that a start compiles each module.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tools.ab import by_turns
from tools.measure_load import free_port, pair
from tools.soaking.process import descendants

from twostroke.assembly.settings.env import process_environment
from twostroke.lab.bench.evict import evict
from twostroke.weights.early.reading import weight_files

PIECE_BYTES = 8 << 20
POLL_S = 0.003
LONGEST_S = 600.0
REQUEST = {"prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}
TICKS = os.sysconf("SC_CLK_TCK")
Start = dict[str, float]


def spent_s(pid: int) -> float:
    """Returns the processor seconds that a process, its threads and its children have used."""
    found = 0
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            found += sum(map(int, fields[11:15]))
    return found / TICKS


def answered(url: str, body: dict[str, Any] | None = None) -> bytes | None:
    """Returns the body of the answer, or None when no server answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LONGEST_S) as reply:
            return bytes(reply.read())
    except (urllib.error.URLError, OSError):
        return None


def environment() -> dict[str, str]:
    """Returns the variables for a server. Python keeps what it compiles, also where this process may not."""
    return {name: value for name, value in process_environment().items() if name != "PYTHONDONTWRITEBYTECODE"}


def started(command: Sequence[str], port: int) -> Start:
    """Starts a server once. Returns the seconds to the first answer of /health and to the first token, and the
    processor seconds until the first token."""
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        began_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment())
        try:
            while answered(f"{url}/health") is None:
                if process.poll() is not None or time.perf_counter() > began_s + LONGEST_S:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} did not start: {log.read()[-2000:].decode(errors='replace')}")
                time.sleep(POLL_S)
            ready_s = time.perf_counter() - began_s
            if answered(f"{url}/v1/completions", REQUEST) is None:
                raise SystemExit(f"{command[0]} did not answer.")
            return {"ready_s": ready_s, "token_s": time.perf_counter() - began_s, "processor_s": spent_s(process.pid)}
        finally:
            process.terminate()
            process.wait(LONGEST_S)


def read_once(paths: Sequence[str]) -> Start:
    """Returns the seconds of reading files in order, by a program that does nothing else."""
    buffer, began_s, began_cpu = bytearray(PIECE_BYTES), time.perf_counter(), time.process_time()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return {"token_s": time.perf_counter() - began_s, "processor_s": time.process_time() - began_cpu}


class Starts:
    """The ways that are measured in each round. kept: the cache folder in which the model is packed; other cache
    folders are made and removed."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self._asked, self._folder, self._kept = asked, folder, folder / "kept"
        self.sources = list(weight_files(str(asked.model)))
        started(*self._own(self._kept))

    @property
    def packed(self) -> list[str]:
        """The paths of the packed files."""
        return [str(path) for path in self._kept.rglob("*.pack")]

    def ways(self) -> dict[str, Callable[[int], Start]]:
        """Returns the functions that are run in each round, by the name of the way."""
        ways: dict[str, Callable[[int], Start]] = {
            "read": lambda number: self._cold(partial(read_once, self.sources)),
            "read packed": lambda number: self._cold(partial(read_once, self.packed)),
            "first": lambda number: self._cold(partial(self._first, number)),
            "first, in memory": lambda number: self._warm(partial(self._first, number)),
            "cold": lambda number: self._cold(lambda: started(*self._own(self._kept))),
            "warm": lambda number: self._warm(lambda: started(*self._own(self._kept))),
        }
        for name, program in self._asked.server:
            ways[f"{name}, cold"] = lambda number, program=program: self._cold(lambda: started(*self._other(program)))
            ways[f"{name}, in memory"] = lambda number, program=program: self._warm(
                lambda: started(*self._other(program))
            )
        return {name: way for name, way in ways.items() if self._asked.only is None or name in self._asked.only}

    def _own(self, cache: Path) -> tuple[list[str], int]:
        port = free_port()
        words = ["--port", str(port), "--cache", str(cache), *self._asked.options.split()]
        return [sys.executable, "-m", "twostroke", "serve", str(self._asked.model), *words], port

    def _other(self, program: str) -> tuple[list[str], int]:
        port, threads = free_port(), str(self._asked.threads)
        return [program, "-m", str(self._asked.model), "--port", str(port), "-t", threads, "-c", "4096"], port

    def _first(self, number: int) -> Start:
        with tempfile.TemporaryDirectory(prefix=f"first{number}-", dir=self._folder) as cache:
            return started(*self._own(Path(cache)))

    def _cold(self, start: Callable[[], Start]) -> Start:
        os.sync()
        if self._asked.drop_all:
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
        else:
            evict((*self.sources, *self.packed))
        return start()

    def _warm(self, start: Callable[[], Start]) -> Start:
        read_once((*self.sources, *self.packed))
        return start()


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns every figure of every round, by way."""
    with tempfile.TemporaryDirectory(prefix="starts-", dir=asked.folder) as folder:
        starts = Starts(asked, Path(folder))
        found = by_turns(starts.ways(), asked.rounds, warm_rounds=0)
        sizes = {
            name: sum(map(os.path.getsize, paths))
            for name, paths in (("source_bytes", starts.sources), ("packed_bytes", starts.packed))
        }
    ways = {name: {key: [each[key] for each in rounds] for key in rounds[0]} for name, rounds in found.items()}
    return {"model": asked.model.name, **sizes, "options": asked.options, "drop_all": asked.drop_all, "ways": ways}


def table(result: dict[str, Any]) -> str:
    """Returns the medians as Markdown."""
    source_mb, packed_mb = result["source_bytes"] / 1e6, result["packed_bytes"] / 1e6
    lines = [f"{result['model']}: {source_mb:,.0f} MB, packed {packed_mb:,.0f} MB"]
    lines += ["", "| start | first token | least | ready | processor |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, way in result["ways"].items():
        ready = f"{median(way['ready_s']):.2f} s" if "ready_s" in way else ""
        times = f"{median(way['token_s']):.2f} s | {min(way['token_s']):.2f} s | {ready}"
        lines.append(f"| {name} | {times} | {median(way['processor_s']):.2f} s |")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--server", type=pair, nargs="+", default=(), metavar="NAME=PROGRAM")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="WAY", help="the ways to measure, by name [default: all]")
    parser.add_argument("--options", default="", help="more words for `twostroke serve`, as one text")
    parser.add_argument("--threads", type=int, default=2, help="of the other servers")
    parser.add_argument("--folder", type=Path, help="where cache folders are made: on the disk that is measured")
    parser.add_argument("--drop-all", action="store_true", help="drop all that the system keeps of files; needs root")
    parser.add_argument("--json", action="store_true", help="every figure of every round")
    asked = parser.parse_args()
    result = measured(asked)
    print(json.dumps(result, indent=1) if asked.json else table(result))


if __name__ == "__main__":
    main()
