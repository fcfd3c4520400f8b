"""Compares this engine with llama.cpp on the published shape of a model family: one file of random weights for both.

    python -m tools.measure_families FAMILY [--mix TYPE] [--folder F] [--layers N] [--rounds 2]
        [--only speed long memory] [--json]

The file is made in the folder when it does not exist yet, and stays there. `speed`: prefill of 512 tokens and decode of
one and of eight streams, both engines in turn. `long`: our decode of one stream after 512 and after 32,768 tokens.
`memory`: the memory that is held next to what was planned. llama.cpp must be installed: twostroke bench peers install
llama_cpp.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.families.memory import held_and_planned
from tools.families.random_file import MXFP4, write_random
from tools.families.shapes import LONG, SHAPES, SHORT, Shape
from tools.families.turns import Engine, Found, Setup, as_text, table, take_turn

from twostroke.assembly.settings.env import process_environment, read_machine
from twostroke.backends.cpu.limits import LimitMeter
from twostroke.lab.bench.cases import Case, decode, prefill
from twostroke.lab.bench.peers.environment import own_python, python_of
from twostroke.lab.bench.peers.peer import OURS, find_peer
from twostroke.quantize.gguf.write import MIXES
from twostroke.runner.folder import read_folder
from twostroke.weights.gguf.unfold import unfold

PEER = "llama_cpp"
SPEED = (prefill(SHORT), decode(1, SHORT, new_tokens=32), decode(8, SHORT, new_tokens=32))
PARTS = ("speed", "long", "memory")
MEMORY_CONTEXT, MEMORY_SEQUENCES = 4096, 2


def note(line: str) -> None:
    """Prints a line to standard error, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def speed(setup: Setup, rounds: int, engines: list[Engine], spec: Any) -> dict[str, Any]:
    """Runs rounds of both engines. Returns every value, and the table of medians."""
    found = {engine.peer.name: Found() for engine in engines}
    meter = LimitMeter(setup.threads, time.perf_counter)
    try:
        for number in range(1, rounds + 1):
            for engine in engines:
                note(f"round {number} of {rounds}: {engine.peer.title}")
                take_turn(setup, engine, found[engine.peer.name], meter, note)
    finally:
        meter.close()
    rows = table(setup, spec, found)
    raw = {name: {"values": each.values, "peak_bytes": each.peak_bytes, "start_s": each.start_s, "fault": each.fault}
           for name, each in found.items()}  # fmt: skip
    return {"rows": rows, "raw": raw}


def long(found: dict[str, Any], names: tuple[str, str]) -> dict[str, Any]:
    """Returns the milliseconds of a step at both contexts, as medians over all turns, and by what share the longer one
    is slower."""
    values = found["raw"][OURS.name]["values"]
    short_ms, long_ms = (1e3 / statistics.median(values[name]) for name in names)
    return {"step_ms": {names[0]: short_ms, names[1]: long_ms}, "slower": long_ms / short_ms - 1}


def measure(name: str, shape: Shape, asked: argparse.Namespace) -> dict[str, Any]:
    """Measures the parts that were asked for, on a file that is made when it does not exist."""
    stem = Path(asked.folder) / (f"{name}-{asked.layers}-layers" if asked.layers else name)
    file = Path(f"{stem}-{shape.mix}.gguf")
    machine = read_machine()
    if not file.exists():
        note(f"writing {file}")
        config = {**shape.config, **({"num_hidden_layers": asked.layers} if asked.layers else {})}
        write_random(config, shape.mix, file)
    spec = read_folder(unfold(file, machine.cache_folder))
    result: dict[str, Any] = {"family": name, "source": shape.source, "layers": spec.num_layers, "mix": shape.mix}
    result["file_bytes"] = file.stat().st_size
    logs = machine.cache_folder / "compare"
    logs.mkdir(parents=True, exist_ok=True)
    variables = {**process_environment(), "OMP_NUM_THREADS": str(asked.threads)}
    ours = Engine(OURS, own_python())

    def setup(cases: tuple[Case, ...]) -> Setup:
        return Setup(stem, shape.mix, asked.threads, cases, variables, logs)

    if "speed" in asked.only:
        python = python_of(machine.cache_folder / "peers", find_peer(PEER))
        if python is None:
            note("llama.cpp is not installed: twostroke bench peers install llama_cpp")
        engines = [ours, *([Engine(find_peer(PEER), python)] if python else [])]
        result["speed"] = speed(setup(SPEED), asked.rounds, engines, spec)
    if "long" in asked.only and shape.long_context:
        pair = (decode(1, SHORT, new_tokens=48), decode(1, asked.long_tokens, new_tokens=48))
        found = speed(setup((*pair, *pair)), 1, [ours], spec)
        result["long"] = found | long(found, (pair[0].name, pair[1].name))
    if "memory" in asked.only:
        result["memory"] = held_and_planned(file, asked.threads, MEMORY_CONTEXT, MEMORY_SEQUENCES)
    return result


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=SHAPES)
    parser.add_argument("--mix", choices=(*MIXES, MXFP4), help="types of the file [default: the family's usual ones]")
    parser.add_argument("--folder", default="families")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--long-tokens", type=int, default=LONG)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    shape = SHAPES[asked.family]
    result = measure(asked.family, replace(shape, mix=asked.mix or shape.mix), asked)
    if asked.json:
        print(json.dumps(result, indent=1))
        return
    for part in ("speed", "long"):
        if part in result:
            print(as_text(result[part]["rows"]))
    print(json.dumps({key: value for key, value in result.items() if key != "speed"}, indent=1))


if __name__ == "__main__":
    main()
