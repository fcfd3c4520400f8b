"""Compares goodput under objectives with the best hand-set token budget: one command for docs/studies/objectives.md.

    tools/study_objectives.py sim --write        five traces at 0.5, 1 and 2 times capacity, two machines, cold and warm
    tools/study_objectives.py real --write       two traces with spark, the real engine in this process

Without --write it prints the tables. The simulation takes some minutes.
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

from objectives_runs import BUDGETS, Machine, RealRun, SimRun, Tally, capacity, run_real, run_sim
from twostroke.assembly.settings.option_values import parse_seconds
from twostroke.lab.workload.synthetic import NAMED
from twostroke.types.objectives import LatencyObjectives

PAGE = Path(__file__).resolve().parent.parent / "docs" / "studies" / "objectives.md"
SEEDS = (1, 2)
REPEATS = 3
OBJECTIVES, GUESSED = "objectives", "guessed"
GOOD_BAR, KEPT_BAR = 0.95, 0.9
"""The bars of the study. GOOD_BAR: the least share of the best budget's good requests. KEPT_BAR: the least share of the
answered requests that meet the objectives."""
LOADS = (0.5, 1.0, 2.0)
TRACES = tuple(NAMED)
MACHINES = (("a100-80gb", "8b", "bf16"), ("xeon-8592+", "1b", "int8"))
Middle = Callable[[Sequence[float]], float]
REAL_LOADS = (0.7, 1.0)
REAL_TRACES = ("long-document-bursts", "overload")


@dataclass(frozen=True)
class Row:
    """One line of a table. load: the rate as a share of the capacity."""

    machine: Machine
    trace: str
    load: float
    rate_per_s: float

    @property
    def title(self) -> str:
        """The title of the table that has this row."""
        start = "cold" if self.machine.cold else "warm"
        return f"{self.machine.name}, {self.machine.model.upper()} in {self.machine.weights}; {start}"

    def runs(self, policy: str, count: int) -> list[SimRun]:
        """Returns the runs of a policy, one for each seed."""
        return [SimRun(self.machine, self.trace, self.rate_per_s, count, seed, policy) for seed in SEEDS]


def simulated(processes: int, count: int, only: str) -> str:
    """Returns the tables of the simulation. only: the beginning of the names of the machines to simulate."""
    policies = (*map(str, BUDGETS), OBJECTIVES, GUESSED)
    rows = []
    for name, model, weights in MACHINES:
        if not name.startswith(only):
            continue
        rates = {trace: capacity(Machine(name, model, weights), trace, count) for trace in TRACES}
        for cold in (False, True):
            machine = Machine(name, model, weights, cold)
            rows += [Row(machine, trace, load, load * rates[trace]) for trace in TRACES for load in LOADS]
    runs = [run for row in rows for policy in policies for run in row.runs(policy, count)]
    with ProcessPoolExecutor(processes) as pool:
        found = dict(zip(runs, pool.map(run_sim, runs, chunksize=4), strict=True))
    lines, title = [], ""
    for row in rows:
        if row.title != title:
            title = row.title
            lines += [f"\n**{title}**\n", *_sim_head()]
        lines.append(_sim_row(row, {policy: [found[run] for run in row.runs(policy, count)] for policy in policies}))
    return "\n".join(lines)


def _sim_head() -> list[str]:
    names = ["trace", "load", "requests/s", "best budget", "its good", "worst"]
    names += [f"{kind}: {what}" for kind in ("doctor", "guess") for what in ("good", "kept", "refused")]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]


def _sim_row(row: Row, found: dict[str, list[Tally]]) -> str:
    """Returns a row of the table, in percent. The best budget is chosen for this very row, with hindsight."""
    good = {policy: mean([tally.good_share for tally in tallies]) for policy, tallies in found.items()}
    static = {policy: good[policy] for policy in map(str, BUDGETS)}
    best = max(static, key=lambda policy: static[policy])
    cells = [row.trace, f"{row.load:g}", f"{row.rate_per_s:.1f}", best]
    cells += [f"{100 * static[best]:.1f}", f"{100 * min(static.values()):.1f}"]
    for policy in (OBJECTIVES, GUESSED):
        kept, refused = (mean([getattr(t, name) for t in found[policy]]) for name in ("kept_share", "refused_share"))
        cells.append(_cell(good[policy], GOOD_BAR * static[best]))
        cells.append(_cell(kept, KEPT_BAR))
        cells.append(f"{100 * refused:.1f}")
    return "| " + " | ".join(cells) + " |"


def _cell(share: float, bar: float) -> str:
    return f"{100 * share:.1f}" + (" (miss)" if share < bar - 1e-9 else "")


class Watched:
    """Runs the real engine and prints a line on standard error for each run, because runs take minutes."""

    def __init__(self, most: int) -> None:
        self._count, self._most = 0, most

    def run(self, run: RealRun) -> Tally:
        """Runs `run_real` and prints its line. Returns its result."""
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
    """Returns the table of the real runs. Policies take turns, so that a noisy minute affects all of them.

    A load is a share of the requests a second that this machine answers when all requests are there from the beginning.
    """
    watched = Watched(len(REAL_TRACES) * (1 + len(REAL_LOADS) * REPEATS * (len(BUDGETS) + 1)))
    lines = [f"\nTTFT {promised.ttft_s:g} s, ITL {promised.itl_s:g} s, median of {REPEATS}\n", *_head()]
    policies = (*map(str, BUDGETS), OBJECTIVES)
    for trace in REAL_TRACES:
        capacity = watched.run(RealRun(trace, 1e6, count, 1, "512", promised)).requests_per_s
        for load in REAL_LOADS:
            rate = round(load * capacity, 1)
            found: dict[str, list[Tally]] = {policy: [] for policy in policies}
            for repeat in range(REPEATS):
                for policy in policies:
                    found[policy].append(watched.run(RealRun(trace, rate, count, repeat + 1, policy, promised)))
            lines.append(_row(trace, rate, found, median))
    return "\n".join(lines)


def _head() -> list[str]:
    names = ["trace", "requests/s", "best budget", "its good", "worst", OBJECTIVES, "refused", "TTFT p50, p99 (ms)"]
    return ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]


def _row(trace: str, rate: float, found: dict[str, list[Tally]], middle: Middle) -> str:
    """Returns a row of the table: good requests in percent of all. The best budget is chosen for this very row, with
    hindsight."""
    share = {policy: 100 * middle([tally.good_share for tally in tallies]) for policy, tallies in found.items()}
    ours = share.pop(OBJECTIVES)
    best = max(share, key=lambda policy: share[policy])
    tallies = found[OBJECTIVES]
    missed = " (miss)" if ours < share[best] - 1e-9 else ""
    late = f"{1e3 * middle([t.ttft_p50_s for t in tallies]):.0f}, {1e3 * middle([t.ttft_p99_s for t in tallies]):.0f}"
    refused = f"{100 * middle([t.refused_share for t in tallies]):.1f}%"
    cells = [trace, f"{rate:g}", best, f"{share[best]:.1f}", f"{min(share.values()):.1f}"]
    cells += [f"**{ours:.1f}**{missed}", refused, late]
    return "| " + " | ".join(cells) + " |"


def write(name: str, table: str) -> None:
    """Write a table between the page's markers with this name. Raises SystemExit when the page has no such markers."""
    text = PAGE.read_text()
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{PAGE} has no place for {name}")
    PAGE.write_text(pattern.sub(lambda match: match[1] + table + match[2], text))


def run() -> None:
    """Read the arguments, run the study, and print or write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=("sim", "real"))
    parser.add_argument("--write", action="store_true", help="into docs/studies/objectives.md")
    parser.add_argument("--processes", type=int, default=2, help="of the simulation")
    parser.add_argument("--count", type=int, default=300, help="requests of a trace")
    parser.add_argument("--only", default="", help="of the simulation, machines whose name begins so")
    parser.add_argument("--ttft", type=parse_seconds, default=0.2, help="objective of the real runs")
    parser.add_argument("--itl", type=parse_seconds, default=0.01, help="objective of the real runs")
    asked = parser.parse_args()
    if asked.kind == "sim":
        table = simulated(asked.processes, asked.count, asked.only)
    else:
        table = measured(LatencyObjectives(asked.ttft, asked.itl), asked.count)
    if asked.write:
        write(asked.kind, table)
    else:
        print(table)


if __name__ == "__main__":
    run()
