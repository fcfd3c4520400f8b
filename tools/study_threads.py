"""Studies thread counts on this machine and on recorded topologies, for docs/studies/threads.md.

    python -m tools.study_threads simulate [--write]     recorded topologies, by the model of the pool (minutes)
    python -m tools.study_threads here                   the model against one and two threads of this machine
    python -m tools.study_threads stress [--threads 64]  so many threads against as many as there are CPUs

`here` and `stress` take turns in one process and print medians and ratios, with processor seconds next to them. On a
machine that does other work, too, only the ratios mean something.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from tests.config.fake_machine import planted

from twostroke.assembly.machine.cgroup import group_cores
from twostroke.assembly.machine.core_choice import CoreChoice
from twostroke.assembly.machine.topology import Topology, read_topology
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.limits import LimitMeter
from twostroke.lab.threads.counts import CountFigure, Matrix, all_figures, layer_of, layer_seconds
from twostroke.lab.threads.machine import CoreRates
from twostroke.llm import LLM
from twostroke.ops.operands import PackedWeight
from twostroke.ops.quant.formats import weight_format
from twostroke.types.sampling.sampling_params import SamplingParams

GIGA = 1e9
PAGE = Path(__file__).resolve().parents[1] / "docs/studies/threads.md"
MARK = "<!-- simulated -->"
PROMPT_ROWS = 512
LAYER = layer_of(4096, 14336)
MACHINES = {
    "xeon_2s": ("2 x Xeon 8480+, 2 nodes", CoreRates(256 * GIGA, 12 * GIGA, 230 * GIGA)),
    "xeon_snc2": ("2 x Xeon 8480+, 4 nodes", CoreRates(256 * GIGA, 12 * GIGA, 115 * GIGA)),
    "epyc_8n": ("2 x EPYC 7763, 8 nodes", CoreRates(100 * GIGA, 18 * GIGA, 38 * GIGA)),
    "arm_server": ("Graviton 3", CoreRates(166 * GIGA, 20 * GIGA, 230 * GIGA)),
    "core_hybrid": ("Core i9-13900K", CoreRates(320 * GIGA, 30 * GIGA, 72 * GIGA)),
    "big_little": ("M1 under Linux", CoreRates(102 * GIGA, 40 * GIGA, 55 * GIGA)),
    "ryzen_2ccd": ("Ryzen 9 7950X", CoreRates(576 * GIGA, 35 * GIGA, 66 * GIGA)),
    "offline": ("8 cores, 4 second threads off", CoreRates(256 * GIGA, 15 * GIGA, 60 * GIGA)),
    "one_and_memory": ("16 cores, 2 nodes far apart", CoreRates(256 * GIGA, 12 * GIGA, 77 * GIGA)),
    "small_vm": ("one core, 2 hardware threads", CoreRates(256 * GIGA, 12 * GIGA, 100 * GIGA)),
    "quota_64": ("64 cores, quota 3.5", CoreRates(256 * GIGA, 12 * GIGA, 230 * GIGA)),
    "quota_v1": ("64 cores, quota 2.5", CoreRates(256 * GIGA, 12 * GIGA, 230 * GIGA)),
}
"""The rates are assumptions. The memory bandwidth of a node is 75 to 80% of the published one. The int8 operations are
those of such a core at its base clock, and the reading rate is the usual one of one hardware thread of such a core."""


def recorded(name: str) -> Topology:
    """Returns a topology of tests/config/topologies. Raises SystemExit when it names no processors."""
    with tempfile.TemporaryDirectory() as folder:
        root = planted(name, Path(folder))
        found = read_topology(None, group_cores(root), root)
    if found is None:
        raise SystemExit(f"{name} names no processors")
    return found


def best_of(figures: Sequence[CountFigure]) -> CountFigure:
    """Returns the figure with the fewest threads among those within 1% of the quickest."""
    least = min(each.seconds for each in figures)
    return next(each for each in figures if each.seconds <= 1.01 * least)


def simulated() -> list[str]:
    """Returns the lines of the table."""
    lines = [
        "| machine | threads | decode: best | chosen takes | prompt: best | chosen takes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, (title, rates) in MACHINES.items():
        topology, cells = recorded(name), []
        for rows in (1, PROMPT_ROWS):
            chosen, tried = all_figures(topology, rates, LAYER, rows)
            best = best_of([*tried, chosen])
            cells += [str(best.threads), f"{chosen.seconds / best.seconds:.2f} times as long"]
        lines.append(f"| {title} | {chosen.threads} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def write(lines: Sequence[str]) -> None:
    """Put the table between the marks of the page."""
    before, _, rest = PAGE.read_text().partition(MARK)
    _, _, after = rest.partition(MARK)
    PAGE.write_text(before + MARK + "\n\n" + "\n".join(lines) + "\n\n" + MARK + after)


class Taken:
    """Seconds and processor seconds of several ways to do the same work, taken in turn."""

    def __init__(self, ways: Mapping[str, Callable[[], object]], rounds: int) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in ways}
        self.used: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, work in ways.items():
                began, used = time.perf_counter(), time.process_time()
                work()
                if number:  # the first is not counted
                    self.seconds[name].append(time.perf_counter() - began)
                    self.used[name].append(time.process_time() - used)

    def median(self, name: str) -> float:
        """Returns the median seconds of a way."""
        return statistics.median(self.seconds[name])

    def words(self, what: str, name: str, other: str) -> str:
        """Returns the ratios of medians, of quickest rounds and of processor seconds, in words."""
        ratio = self.median(name) / self.median(other)
        least = min(self.seconds[name]) / min(self.seconds[other])
        used = statistics.median(self.used[name]) / statistics.median(self.used[other])
        return f"{what}: {name} takes {ratio:.3f} times {other} (quickest {least:.3f}, processor seconds {used:.3f})"


def random_weight(rows: int, columns: int, rng: np.random.Generator) -> PackedWeight:
    """Returns an int8 matrix of random codes."""
    kind = weight_format("int8")
    data = rng.integers(0, 255, kind.data_bytes(rows, columns), np.uint8)
    return PackedWeight(kind, rows, columns, data, np.full(kind.scale_bytes(rows, columns) // 2, 0x3C00, np.uint16))


class LayerWork:
    """The products of one layer for `rows` rows, as one recorded call."""

    def __init__(self, ops: CpuOps, weights: Sequence[PackedWeight], rows: int) -> None:
        self._ops, self._calls = ops, ops.recorder()
        rng = np.random.default_rng(rows)
        self._kept = []
        for weight in weights:
            x = rng.standard_normal((rows, weight.columns)).astype(np.float32)
            out = np.empty((rows, weight.rows), np.float32)
            self._calls.linear(out, x, weight)
            self._kept.append((x, out))
        self._done = self._calls.calls()

    def __call__(self) -> None:
        self._ops.run(self._done)


def compare_here(rounds: int) -> None:
    """Compares how much quicker two threads are than one: as the model predicts it from limits, and as products measure
    it."""
    counts, rng = (1, 2), np.random.default_rng(0)
    layer = tuple(Matrix(each.outputs, each.inputs, 1.0) for each in layer_of(2048, 8192))
    weights = [random_weight(each.outputs, each.inputs, rng) for each in layer * 4]
    meters = {count: LimitMeter(count, time.perf_counter) for count in counts}
    limits = {count: meter.measure() for count, meter in meters.items()}
    one, two = limits[1], limits[2]
    rates = CoreRates(one.int8_ops_per_s, one.read_bytes_per_s, two.read_bytes_per_s)
    found = read_topology(os.sched_getaffinity(0), None)
    if found is None or len(found.cpus) < max(counts):
        raise SystemExit("needs two CPUs")
    print(f"limits: {one.words()}; {two.words()}")
    for rows in (1, 128):
        predicted = [layer_seconds(found, rates, CoreChoice(count, ""), layer, rows).seconds for count in counts]
        with closing(CpuOps(None, 1)) as alone, closing(CpuOps(None, 2)) as both:
            ways = {"1": LayerWork(alone, weights, rows), "2": LayerWork(both, weights, rows)}
            taken = Taken(ways, rounds)
        measured = taken.median("1") / taken.median("2")
        gain = predicted[0] / predicted[1]
        print(f"{rows} rows: two threads {gain:.2f} times one predicted, {measured:.2f} measured")


def stress(threads: int, rounds: int) -> None:
    """Times products and the whole engine with far more threads than CPUs, in turn with as many threads as there are
    CPUs."""
    cpus = len(os.sched_getaffinity(0))
    many, few = f"{threads} threads", f"{cpus} threads"
    rng = np.random.default_rng(0)
    weights = [random_weight(each.outputs, each.inputs, rng) for each in layer_of(2048, 8192)]
    with closing(CpuOps(None, threads)) as crowd, closing(CpuOps(None, cpus)) as usual:
        for rows in (1, 16, 128):
            taken = Taken({many: LayerWork(crowd, weights, rows), few: LayerWork(usual, weights, rows)}, rounds)
            print(taken.words(f"products of {rows} rows", many, few), flush=True)
    options: dict[str, Any] = {"cache": "off", "kv_memory": "64MB", "speculate": "off", "context": 1024}
    with LLM("spark", threads=threads, **options) as crowded, LLM("spark", threads=cpus, **options) as engine:
        for what, length, tokens in (("64 tokens", 3, 64), ("a prompt of 800", 800, 1)):
            ways = {name: Answers(llm, length, tokens) for name, llm in ((many, crowded), (few, engine))}
            print(Taken(ways, rounds).words(f"spark, {what}", many, few), flush=True)


class Answers:
    """Answers to prompts of random tokens, so that no prompt is found in the prefix cache."""

    def __init__(self, llm: LLM, length: int, tokens: int) -> None:
        self._llm, self._length = llm, length
        self._rng = np.random.default_rng(length)
        self._asked = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)

    def __call__(self) -> None:
        ids = self._rng.integers(5, self._llm.spec.vocab_size - 5, self._length)
        self._llm.generate([[int(each) for each in ids]], self._asked)


def main() -> None:
    """Run the command line. See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("simulate", "here", "stress"))
    parser.add_argument("--write", action="store_true", help="into docs/studies/threads.md")
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    if options.what == "here":
        compare_here(options.rounds)
    elif options.what == "stress":
        stress(options.threads, options.rounds)
    else:
        lines = simulated()
        if options.write:
            write(lines)


if __name__ == "__main__":
    main()
