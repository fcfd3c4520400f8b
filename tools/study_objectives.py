"""Goodput under objectives against the best hand-set token budget: docs/studies/objectives.md, one command.

    tools/study_objectives.py sim --write        five traces, three loads each, two machines, in simulation (minutes)
    tools/study_objectives.py real --write       two traces with spark, the real engine in this process

Without --write it prints the tables.

Knows: the heart, the simulator's clock and executor, the engine's composition root, workloads.
Must not know: which policy ought to win.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from objectives_runs import BUDGETS, RIGHT, WRONG, RealRun, SimRun, Tally, run_real, run_sim
from twostroke.options import parse_seconds
from twostroke.types.objectives import LatencyObjectives

PAGE = Path(__file__).resolve().parent.parent / "docs" / "studies" / "objectives.md"
SEEDS = (1, 2)
REPEATS = 3
OBJECTIVES, UNREFUSED = "objectives", "no refusal"
Middle = Callable[[Sequence[float]], float]
POLICIES = (OBJECTIVES, UNREFUSED)


@dataclass(frozen=True)
class Bench:
    """A machine, its model, and the loads in requests a second: calm, near capacity, beyond it."""

    machine: str
    model: str
    weights: str
    loads: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    bench: Bench
    trace: str
    rate_per_s: float
    truth: str

    @property
    def title(self) -> str:
        """Of its table."""
        return f"{self.bench.machine}, {self.bench.model.upper()} in {self.bench.weights}; {self.truth}"

    def runs(self, policy: str, count: int) -> list[SimRun]:
        """One for each seed."""
        machine = (self.bench.machine, self.bench.model, self.bench.weights, self.truth)
        return [SimRun(*machine, self.trace, self.rate_per_s, count, seed, policy) for seed in SEEDS]


BENCHES = (
    Bench(
        "a100-80gb",
        "8b",
        "bf16",
        {
            "steady-chat": (16, 28, 40),
            "long-document-bursts": (4, 7, 10),
            "shared-prefix-agents": (15, 25, 40),
            "mixed-batch-interactive": (12, 24, 36),
            "overload": (6, 12, 24),
        },
    ),
    Bench(
        "xeon-8592+",
        "1b",
        "int8",
        {
            "steady-chat": (10, 24, 36),
            "long-document-bursts": (3, 6, 9),
            "shared-prefix-agents": (12, 24, 36),
            "mixed-batch-interactive": (8, 18, 30),
            "overload": (6, 12, 24),
        },
    ),
)
REAL_LOADS = (0.7, 1.0)
REAL_TRACES = ("long-document-bursts", "overload")


def simulated(processes: int, count: int) -> str:
    """The table of the simulation."""
    policies = (*map(str, BUDGETS), *POLICIES)
    rows = [
        Row(bench, trace, rate, RIGHT) for bench in BENCHES for trace, rates in bench.loads.items() for rate in rates
    ]
    rows += [Row(BENCHES[0], trace, rates[1], WRONG) for trace, rates in BENCHES[0].loads.items()]
    runs = [run for row in rows for policy in policies for run in row.runs(policy, count)]
    with ProcessPoolExecutor(processes) as pool:
        found = dict(zip(runs, pool.map(run_sim, runs, chunksize=8), strict=True))
    lines, title = [], ""
    for row in rows:
        if row.title != title:
            title = row.title
            lines += [f"\n**{title}**\n", *_head(POLICIES)]
        by_policy = {policy: [found[run] for run in row.runs(policy, count)] for policy in policies}
        lines.append(_row(row.trace, row.rate_per_s, by_policy, POLICIES, mean))
    return "\n".join(lines)


class Watched:
    """Real runs take minutes: a line on stderr for each."""

    def __init__(self, most: int) -> None:
        self._count, self._most = 0, most

    def run(self, run: RealRun) -> Tally:
        """What `run_real` says."""
        begin_s = time.perf_counter()
        found = run_real(run)
        self._count += 1
        seconds = time.perf_counter() - begin_s
        rate = "all at once" if run.rate_per_s >= 1e6 else f"{run.rate_per_s:g}/s"
        print(
            f"[{self._count}/{self._most}] {run.trace}, {rate}, policy {run.policy}, seed {run.seed}: "
            f"{found.good_share:.1%} good, {found.requests_per_s:.1f} requests/s, {seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        return found


def measured(promised: LatencyObjectives, count: int) -> str:
    """The table of the real runs; policies take turns, so that a noisy minute hits all.

    Loads are shares of what this machine answers of the trace when all requests are there from the beginning.
    """
    watched = Watched(len(REAL_TRACES) * (1 + len(REAL_LOADS) * REPEATS * (len(BUDGETS) + 1)))
    lines = [f"\nTTFT {promised.ttft_s:g} s, ITL {promised.itl_s:g} s, median of {REPEATS}\n", *_head((OBJECTIVES,))]
    policies = (*map(str, BUDGETS), OBJECTIVES)
    for trace in REAL_TRACES:
        capacity = watched.run(RealRun(trace, 1e6, count, 1, "512", promised)).requests_per_s
        for load in REAL_LOADS:
            rate = round(load * capacity, 1)
            found: dict[str, list[Tally]] = {policy: [] for policy in policies}
            for repeat in range(REPEATS):
                for policy in policies:
                    found[policy].append(watched.run(RealRun(trace, rate, count, repeat + 1, policy, promised)))
            lines.append(_row(trace, rate, found, (OBJECTIVES,), median))
    return "\n".join(lines)


def _head(policies: Sequence[str]) -> list[str]:
    names = ["trace", "requests/s", "best budget", "its good", "worst", *policies, "refused", "TTFT p50, p99 (ms)"]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]


def _row(trace: str, rate: float, found: dict[str, list[Tally]], policies: Sequence[str], middle: Middle) -> str:
    """Good requests in percent of all; the best budget is chosen for this very row, with hindsight."""
    share = {policy: 100 * middle([tally.good_share for tally in tallies]) for policy, tallies in found.items()}
    static = {policy: value for policy, value in share.items() if policy not in POLICIES}
    best = max(static, key=lambda policy: static[policy])
    ours = found[OBJECTIVES]
    missed = " (miss)" if share[OBJECTIVES] < static[best] - 1e-9 else ""
    shown = [f"**{share[p]:.1f}**{missed}" if p == OBJECTIVES else f"{share[p]:.1f}" for p in policies]
    late = f"{1e3 * middle([t.ttft_p50_s for t in ours]):.0f}, {1e3 * middle([t.ttft_p99_s for t in ours]):.0f}"
    refused = f"{100 * middle([t.refused_share for t in ours]):.1f}%"
    cells = [trace, f"{rate:g}", best, f"{static[best]:.1f}", f"{min(static.values()):.1f}", *shown, refused, late]
    return "| " + " | ".join(cells) + " |"


def write(name: str, table: str) -> None:
    """Between the page's markers of this name."""
    text = PAGE.read_text()
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{PAGE} has no place for {name}")
    PAGE.write_text(pattern.sub(lambda match: match[1] + table + match[2], text))


def run() -> None:
    """Read the arguments, run, print or write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=("sim", "real"))
    parser.add_argument("--write", action="store_true", help="into docs/studies/objectives.md")
    parser.add_argument("--processes", type=int, default=2, help="of the simulation")
    parser.add_argument("--count", type=int, default=400, help="requests of a trace")
    parser.add_argument("--ttft", type=parse_seconds, default=0.2, help="objective of the real runs")
    parser.add_argument("--itl", type=parse_seconds, default=0.01, help="objective of the real runs")
    asked = parser.parse_args()
    if asked.kind == "sim":
        table = simulated(asked.processes, asked.count)
    else:
        table = measured(LatencyObjectives(asked.ttft, asked.itl), asked.count)
    if asked.write:
        write(asked.kind, table)
    else:
        print(table)


if __name__ == "__main__":
    run()
