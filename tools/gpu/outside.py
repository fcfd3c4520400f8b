"""Runs other projects' programs on the same machine: compute-sanitizer on our kernels, and torch and llama.cpp for
figures.

A program that is not installed is reported as missing. None may hold the others up.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROW = dict[str, Any]
SANITIZERS = (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer")
Limit = Callable[[], float]
"""A function that returns the seconds that the next program may take."""
SANITIZED_S = 50.0
"""The seconds for each tool of compute-sanitizer. The driver may compile for 20 seconds of them. The ops get a quarter
of the time that measure.py is given."""
TOOLS = (("memcheck", 2), ("racecheck", 3))
COMPARED = re.compile(r"\d+ cases compared, [^\n]*")
LLAMA_BENCH = (
    ("-p", "128,2048", "-n", "0", "-ub", "512,2048"),
    ("-p", "0", "-n", "128", "-d", "512"),
)
"""Prompts in the usual pieces and whole; then one stream after 512 tokens, as the steps of shapes.py have it."""
LLAMA_USUAL = ("-ngl", "99", "-fa", "1", "-r", "3", "-o", "json")
LLAMA_STREAMS = (
    *("-ngl", "99", "-fa", "on", "-c", "16384", "-npp", "32", "-ntg", "128", "-npl", "64"),
    *("--output-format", "jsonl"),
)
ENDED_S = 5.0
"""The seconds in which the output of a command that was ended must be complete."""
TAIL = 400
"""The number of characters of a program's output that are kept."""


def run(command: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Returns the exit code of a command and its output. The code is None when it took too long or did not start. A
    command that took too long is ended together with the processes that it started."""
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", process_group=0
        )
    except OSError as error:
        return None, str(error)
    try:
        said = "".join(process.communicate(timeout=timeout_s))
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        said = "".join(process.communicate(timeout=ENDED_S))
    except subprocess.TimeoutExpired:  # another group of processes still has the pipes
        said = ""
    return None, f"{said}\nnot done after {timeout_s:.0f} s"


def sanitized(limit: Limit, tools: Sequence[tuple[str, int]] = TOOLS) -> Iterator[ROW]:
    """Runs some of our cases under each tool of compute-sanitizer. tools: the name of each tool, and n, where the tool
    checks one of n cases."""
    program = next((path for path in SANITIZERS if path and Path(path).exists()), None)
    for tool, every in tools:
        if program is None:
            yield {"what": f"compute-sanitizer {tool}", "missing": "not installed"}
            continue
        command = (program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "tools.gpu.measure")
        seconds = min(limit(), SANITIZED_S)
        asked = (
            "--parts",
            "ops",
            "--every",
            str(every),
            "--seconds",
            f"{1.8 * seconds:.0f}",
            "--out",
            "/tmp/sanitized",
        )
        code, said = run((*command, *asked), seconds)
        compared = COMPARED.search(said)
        found = "no error" if code == 0 else f"exit code {code}: {said[-TAIL:]}"
        yield {"what": f"compute-sanitizer {tool}", "found": f"{compared[0] if compared else 'nothing said'}; {found}"}


def torch_figures(sizes: Sequence[str], limit: Limit) -> Iterator[ROW]:
    """Runs steps of the same shapes by torch, compiled, with CUDA graphs. Yields the steps that were done in time.
    sizes: the options of torch_peer.py."""
    if importlib.util.find_spec("torch") is None:
        yield {"what": "torch", "missing": "not installed"}
        return
    seconds = limit()
    program = (sys.executable, str(Path(__file__).with_name("torch_peer.py")), "--seconds", f"{0.7 * seconds:.0f}")
    code, said = run((*program, *sizes), seconds)
    lines = [line for line in said.splitlines() if line.startswith("{")]
    yield from (json.loads(line) for line in lines)
    if code != 0:
        yield {"what": "torch", "missing": f"it did not finish: {said[-TAIL:]}"}


def llama_cpp_figures(gguf: str | None, limit: Limit) -> Iterator[ROW]:
    """Yields the figures of a GGUF file by llama-bench for prompts and one stream, and by llama-batched-bench for 64
    streams."""
    program = shutil.which("llama-bench")
    if program is None or gguf is None:
        why = "llama-bench is not on the PATH" if program is None else "no --gguf was given"
        yield {"what": "llama.cpp", "missing": why}
        return
    for asked in LLAMA_BENCH:
        code, said = run((program, "-m", gguf, *LLAMA_USUAL, *asked), limit())
        if code != 0:
            yield {"what": "llama.cpp", "missing": f"it did not finish: {said[-TAIL:]}"}
            return
        for each in json.loads(said[said.index("[\n") : said.index("\n]") + 2]):
            after = f" after {each['n_depth']}" if each.get("n_depth") else ""
            pieces = f", pieces of {each['n_ubatch']}" if each["n_prompt"] else ""
            what = f"llama.cpp, {each['n_prompt']} in, {each['n_gen']} out{after}{pieces}"
            yield {"what": what, "rows_per_s": each["avg_ts"]}
    batched = shutil.which("llama-batched-bench")
    if batched is not None:
        code, said = run((batched, "-m", gguf, *LLAMA_STREAMS), limit())
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        for line in lines:
            what = f"llama.cpp, {line['pl']} streams, {line['pp']} in, {line['tg']} out"
            yield {"what": what, "rows_per_s": line["speed_tg"]}
            yield {"what": f"{what}: prompts", "rows_per_s": line["speed_pp"]}
        if code != 0 or not lines:
            yield {"what": "llama.cpp, streams", "missing": f"it did not finish: {said[-TAIL:]}"}
