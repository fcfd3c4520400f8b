"""Measures a machine with an NVIDIA GPU: whether its bits are those of the CPU, and how long its work takes.

Nothing is built on that machine.

    python -m tools.gpu.measure [--out FOLDER] [--device N|emulated] [--seconds 480] [--parts ops,steps] [--every N]
        [--gguf FILE] [--peer-seconds 60]

It needs the Python packages of NEEDED, and the files that both build.py make (src/twostroke/backends/*/lib), made
beforehand on any machine. `served` needs the server's packages, too. The last three parts run programs that are
installed. Each part is written to measure.json and measure.md as soon as it is done, and none holds the others up:

open       the driver's context and the kernels, from the driver's cache; the very first time is in the first line
sampling   tokens and log probabilities, against the sampler in NumPy
ops        every case of an op and of tools/gpu/cases.py, byte for byte against the CPU's level with fused multiply-add
logits     logits of spark in pairs of formats, compared the same way: prompts in chunks, then decode steps
schedules  the exactness law: requests together, in chunks and preempted, against each alone on the CPU
times      a launch, copying memory
kernels    each op of a layer by itself, in the formats of weights, for streams and prompts
steps      steps of models of published shapes, with weights that mean nothing
served     `twostroke serve` from its command line: start to first token, streams, a long prompt, the host's part
sanitizer  memcheck and racecheck of some of the ops, where compute-sanitizer is installed
torch      the same shapes by torch, compiled, where it is installed
llama      figures of a GGUF file by llama-bench, where it is on the PATH

Cases that differ are listed with the number of different bytes. A time is the median of its rounds. The exit code is 1
when a byte differs or a part failed, and 2 when there is no device. `--device emulated` runs all parts in the emulator
of tests/cuda, which is compiled for that: its bits count, its times mean nothing.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tools.gpu import kernel_shapes, outside, schedules, shapes
from tools.gpu.compare import compare_ops, compare_sampling, compare_spark
from tools.gpu.gguf_there import MIXES, write_gguf
from tools.gpu.kernel_tables import kernel_tables
from tools.gpu.kernel_times import Table, time_kernels
from tools.gpu.served import Served, serve_times

from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.backends.cuda.device import CudaDevice
from twostroke.ops.rows.pointwise import PointStep, Pointwise, program_of
from twostroke.types.errors import TwostrokeError

NEEDED = ("msgspec", "numpy")
"""The packages of others that this script imports itself. It imports typing_extensions, too, where that is installed.
"""
SAME_BITS = ("neon", "avx2")
ROUNDS = 20
COPIED_BYTES = 1 << 30
KERNELS_S, STEPS_S, SERVED_S = 40.0, 45.0, 60.0
"""The seconds of each of these parts after which no further case of the part begins."""
KEPT_S = 1.0
"""The seconds after which rows of an unfinished part are written too."""
TIMED_S = 0.5
"""The seconds of rounds after which no further round of a measurement begins."""
PEER_S = 60.0
"""The seconds that one program of another project may take, unless --peer-seconds names others."""
SERVED_FOLDER = Path("/tmp/twostroke-served")
"""The folder of checkpoints, packed weights and logs. 8B takes 25 GB."""
ENDED_S = 100.0
"""The seconds beyond --seconds after which the whole program is ended."""
EMULATED = "emulated"

Clock = Callable[[], float]
Row = dict[str, Any]
Make = Callable[[], CudaDevice]


@dataclass(frozen=True)
class Bench:
    """The settings that all parts share. model_shapes, tables, steps, copied_bytes: small in the emulator. emulated:
    whether the device is the emulator.

    seconds: the time after which no further case begins; some parts have limits of their own. rounds: the rounds of
    each measurement. peer_s: the seconds that one program of another project may take. every: the step through the
    cases of single ops; 1 compares all of them.
    """

    make: Make
    clock: Clock
    seconds: float
    model_shapes: dict[str, dict[str, Any]]
    tables: tuple[Table, ...] = ()
    steps: tuple[tuple[str, int, int], ...] = shapes.STEPS
    served: tuple[Served, ...] = ()
    copied_bytes: int = COPIED_BYTES
    every: int = 1
    emulated: bool = False
    gguf: str | None = None
    rounds: int = ROUNDS
    peer_s: float = PEER_S
    started: list[float] = field(default_factory=list)

    def within(self, seconds: float) -> Callable[[], bool]:
        """Returns a function that tells whether a further case may begin. It is false `seconds` from now, and after the
        bench's `seconds` in any case."""
        end = min(self.clock() + seconds, self.started[0] + self.seconds)
        return lambda: self.clock() < end

    def peer_limit(self) -> float:
        """Returns the seconds that the next program of another project may take: at most the bench's remaining time."""
        return min(self.peer_s, max(1.0, self.started[0] + self.seconds - self.clock()))


def timed(call: Callable[[], object], bench: Bench) -> float:
    """Returns the median seconds of `call`, which waits for the device. Long calls are measured in fewer rounds."""
    call()
    taken = []
    for _ in range(bench.rounds):
        before = bench.clock()
        call()
        taken.append(bench.clock() - before)
        if sum(taken) > TIMED_S:
            break
    return statistics.median(taken)


def timings(device: CudaDevice, bench: Bench, launches: int = 200) -> Iterator[Row]:
    """Yields the seconds of one launch among many."""
    x = device.put(np.ones((1, 64), np.float32))
    recorder = device.recorder()
    for _ in range(launches):
        recorder.record(Pointwise, (x, program_of(PointStep.TIMES_A), None, None, None, 1.0))
    calls = recorder.calls()
    yield {
        "what": "one launch among many",
        "seconds": timed(lambda: (device.run(calls), device.wait()), bench) / launches,
    }


def open_twice(bench: Bench) -> Iterator[Row]:
    """Yields the seconds until a device is ready, the first and the second time."""
    for words in ("first", "second"):
        before = bench.clock()
        device = bench.make()
        yield {"what": f"open a device, {words} time", "seconds": bench.clock() - before}
        device.close()


def of_device(bench: Bench, part: Callable[[CudaDevice], Iterable[Row]]) -> Iterator[Row]:
    """Yields the rows of a part that needs one device. The device is closed at the end."""
    device = bench.make()
    try:
        yield from part(device)
    finally:
        device.close()


def copies(device: CudaDevice, bench: Bench) -> Iterator[Row]:
    """Yields the bytes a second of a copy on the device, read and written bytes together."""
    rows = device.zeros(2 * bench.copied_bytes).reshape(2, -1)
    seconds = timed(lambda: (device.copy_row(rows, 0, 1), device.wait()), bench)
    yield {"what": "copy on the device", "seconds": seconds, "bytes_per_s": 2 * bench.copied_bytes / seconds}


def parts_of(bench: Bench) -> dict[str, Callable[[CpuOps], Iterator[Row]]]:
    """Returns all parts by name, in the order in which they run."""

    def times(_ops: CpuOps) -> Iterator[Row]:
        yield from of_device(bench, lambda device: timings(device, bench))
        yield from of_device(bench, lambda device: copies(device, bench))

    def by_torch(_ops: CpuOps) -> Iterator[Row]:
        yield from outside.torch_figures(
            ("--device", "cpu", "--rounds", "3", *TINY) if bench.emulated else (), bench.peer_limit
        )

    return {
        "open": lambda _ops: open_twice(bench),
        "sampling": lambda _ops: of_device(bench, compare_sampling),
        "ops": lambda ops: compare_ops(bench.make, ops, bench.within(0.25 * bench.seconds), bench.every),
        "logits": lambda ops: compare_spark(bench.make, ops, bench.within(0.15 * bench.seconds)),
        "schedules": lambda ops: schedules.compare_schedules(bench.make, ops, bench.within(0.1 * bench.seconds)),
        "times": times,
        "kernels": lambda _ops: time_kernels(bench.make, bench.tables, bench.clock, bench.within(KERNELS_S)),
        "steps": lambda _ops: shapes.time_steps(
            bench.make, bench.model_shapes, bench.steps, lambda call: timed(call, bench), bench.within(STEPS_S)
        ),
        "served": lambda _ops: serve_times(bench.served, SERVED_FOLDER, bench.within(SERVED_S)),
        "sanitizer": lambda _ops: outside.sanitized(bench.peer_limit),
        "torch": by_torch,
        "llama": lambda _ops: outside.llama_cpp_figures(gguf_of(bench.gguf), bench.peer_limit),
    }


TINY = ("--hidden", "128", "--inner", "128", "--layers", "1", "--vocabulary", "300")


def gguf_of(asked: str | None) -> str | None:
    """Returns the path of a file for llama-bench. The file is made when `asked` is SHAPE:MIX."""
    shape, _, mix = (asked or "").partition(":")
    if mix not in MIXES:
        return asked
    SERVED_FOLDER.mkdir(parents=True, exist_ok=True)
    return str(write_gguf(shapes.SHAPES[shape], mix, SERVED_FOLDER / f"{shape}-{mix}.gguf"))


def measure(bench: Bench, names: Iterable[str] | None, keep: Callable[[Row], None]) -> Row:
    """Measures the parts with these names, or all for None. keep: is given the results so far, after each part and
    while a part runs."""
    level = next(level for level in SAME_BITS if level in available_levels())
    before = bench.clock()
    device, ops = bench.make(), CpuOps(level, 4)
    facts, image, opened_s = device.facts, device.image_name, bench.clock() - before
    bench.started.append(bench.clock())  # the driver may have compiled for longer than a part takes
    device.close()
    about = ("name", "capability", "multiprocessors", "driver_version", "free_bytes", "total_bytes")
    found: Row = {
        "device": {name: getattr(facts, name) for name in about},
        "emulated": bench.emulated,
        "first_open_s": opened_s,
        "cpu_level": level,
        "image": image,
        "parts": {},
    }
    parts, kept = parts_of(bench), time.monotonic()
    for name in parts if names is None else names:
        rows: list[Row] = []
        found["parts"][name] = rows
        try:
            for row in parts[name](ops):
                rows.append(row)
                if time.monotonic() - kept > KEPT_S:
                    keep(found)
                    kept = time.monotonic()
        except Exception as error:  # what one part does wrong must not cost the others
            rows.append({"case": f"part {name}", "failed": f"{type(error).__name__}: {error}"})
        found["seconds"] = bench.clock() - bench.started[0]
        keep(found)
        print(f"{found['seconds']:6.1f} s: {name} done", file=sys.stderr, flush=True)
    ops.close()
    return found


def rows_of(found: Row, key: str) -> list[Row]:
    """Returns the rows of all parts that have this key."""
    return [row for rows in found["parts"].values() for row in rows if key in row]


def is_wrong(found: Row) -> bool:
    """Returns whether a byte differs or a part has failed."""
    return bool([row for row in rows_of(found, "different") if row["different"]] or rows_of(found, "failed"))


def report(found: Row) -> str:
    """Returns the figures as Markdown."""
    compared_rows, failed, left = (rows_of(found, key) for key in ("different", "failed", "not_run"))
    wrong = [row for row in compared_rows if row["different"]]
    device = found["device"]
    lines = [
        f"# {device['name']}\n",
        *(["**Emulated: the times say nothing.**\n"] if found["emulated"] else []),
        f"Compute capability {device['capability'][0]}.{device['capability'][1]}, driver {device['driver_version']}, "
        f"{device['total_bytes'] / 1e9:.1f} GB. Compared with the CPU's level {found['cpu_level']}. "
        f"First opened in {found['first_open_s']:.1f} s with {found['image']}. "
        f"{found.get('seconds', 0.0):.0f} s in all.\n",
        f"{len(compared_rows)} cases compared, {len(wrong)} differ, {len(failed)} failed, {len(left)} not run.\n",
        *(f"- differs: {row['case']}: {row['different']} of {row['bytes']} bytes" for row in wrong),
        *(f"- failed: {row['case']}: {row['failed']}" for row in failed),
        *(f"- not run: {row.get('case') or row['what']}: {row['not_run']}" for row in left),
        *(f"- missing: {row['what']}: {row['missing']}" for row in rows_of(found, "missing")),
        *(f"- {row['what']}: {row['found']}" for row in rows_of(found, "found")),
        "\n| what | time | rows a second | GB/s |\n| --- | --- | --- | --- |",
    ]
    for row in rows_of(found, "seconds") + [row for row in rows_of(found, "rows_per_s") if "seconds" not in row]:
        taken = f"{1e6 * row['seconds']:,.1f} us" if "seconds" in row else ""
        rows = f"{row['rows_per_s']:,.1f}" if "rows_per_s" in row else ""
        rate = f"{row['bytes_per_s'] / 1e9:,.1f}" if "bytes_per_s" in row else ""
        lines.append(f"| {row['what']} | {taken} | {rows} | {rate} |")
    lines.append(kernel_tables(rows_of(found, "seconds_of_call")))
    return "\n".join(lines) + "\n"


def served_on(flags: tuple[str, ...], gguf: str | None) -> tuple[Served, ...]:
    """Returns the models to serve: checkpoints of 8B and 1B, or only the file when --gguf is SHAPE:MIX."""
    shape, _, mix = (gguf or "").partition(":")
    if mix in MIXES:
        return (Served(f"{shape} {mix}", shapes.SHAPES[shape], flags, mix=mix),)
    return tuple(Served(f"{name} int8", shapes.SHAPES[name], flags) for name in ("8B", "1B"))


def bench_of(device: str, seconds: float, gguf: str | None, every: int = 1, peer_s: float = PEER_S) -> Bench:
    """Returns the bench for a device by its number, or for the emulator, where all sizes are small."""
    if device != EMULATED:
        real: Row = {"model_shapes": shapes.SHAPES, "tables": kernel_shapes.TABLES}
        real["served"] = served_on(("--device", f"cuda:{device}"), gguf)
        real |= {"gguf": gguf, "every": every, "peer_s": peer_s}
        return Bench(lambda: CudaDevice(int(device)), time.perf_counter, seconds, **real)
    from tests.cuda.emulator import fake  # compiles it

    small: Row = {"model_shapes": shapes.SMALL, "copied_bytes": 1 << 20, "rounds": 1}
    small |= {"tables": kernel_shapes.SMALL_TABLES, "steps": shapes.SMALL_STEPS}
    there = (("LD_LIBRARY_PATH", str(fake.fake_driver().parent)),)
    tiny = shapes.SMALL["tiny"] | {"vocab_size": 600}
    small["served"] = (Served("tiny int8", tiny, ("--device", "cuda"), 4, 64, 8, there),)
    small |= {"emulated": True, "gguf": gguf, "every": every, "peer_s": peer_s}
    return Bench(fake.device, time.perf_counter, seconds, **small)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Compare and time a CUDA device.")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--device", default="0", help="its number, or emulated")
    parser.add_argument("--seconds", type=float, default=480.0, help="after which no further case is begun")
    parser.add_argument("--parts", help="some of them, with commas; all without it")
    parser.add_argument("--gguf", help="a file for llama-bench, or SHAPE:MIX, such as 8B:Q4_K_M, which is made")
    parser.add_argument("--peer-seconds", type=float, default=PEER_S, help="for each program of another project")
    parser.add_argument("--every", type=int, default=1, help="each how manyth case of single ops is compared")
    asked = parser.parse_args()
    if not (asked.device.isdigit() or asked.device == EMULATED):
        parser.error(f"--device is a number or {EMULATED}, not {asked.device}")
    bench = bench_of(asked.device, asked.seconds, asked.gguf, asked.every, asked.peer_seconds)
    names = asked.parts.split(",") if asked.parts else None
    if unknown := sorted(set(names or ()) - set(parts_of(bench))):
        parser.error(f"--parts: there is no {', '.join(unknown)}; choose from {', '.join(parts_of(bench))}")
    asked.out.mkdir(parents=True, exist_ok=True)

    def keep(found: Row) -> None:
        (asked.out / "measure.json").write_text(json.dumps(found, indent=1) + "\n")
        (asked.out / "measure.md").write_text(report(found))

    faulthandler.dump_traceback_later(asked.seconds + ENDED_S, exit=True)  # a kernel that never ends
    try:
        found = measure(bench, names, keep)
    except TwostrokeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report(found))
    return int(is_wrong(found))


if __name__ == "__main__":
    sys.exit(main())
