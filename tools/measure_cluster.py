"""Measures the figures of a cluster and compares them with their goals. For a quiet machine of two cores or more.

    python -m tools.measure_cluster [--only NAME]... [--list] [--json]

`--list` names the cases. Progress goes to standard error. The exit code is 1 when a goal was not reached.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from tools.cluster.case import Case
from tools.cluster.divided import RanksBesideThreads
from tools.cluster.kills import KillsInAWorld
from tools.cluster.pause import PauseAtAKill
from tools.cluster.prefixes import RealHits, SimulatedHits
from tools.cluster.price import FrontsPrice
from tools.cluster.simulated import SimulatorBesideProcesses
from tools.cluster.split import SplitPools, TransferHidden

CASES: tuple[Case, ...] = (
    FrontsPrice(),
    PauseAtAKill(),
    SimulatedHits(),
    RealHits(),
    SplitPools(),
    TransferHidden(),
    SimulatorBesideProcesses(),
    RanksBesideThreads("int8"),
    RanksBesideThreads("int4"),
    KillsInAWorld(),
)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES], help="may be repeated")
    parser.add_argument("--list", action="store_true", help="name the cases and their goals; measure nothing")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    chosen = [case for case in CASES if asked.only is None or case.name in asked.only]
    if asked.list:
        for case in chosen:
            print(f"{case.name:<15} about {case.minutes:g} minutes: {case.goal}")
        return 0
    found: dict[str, dict[str, Any]] = {}
    missed = 0
    for place, case in enumerate(chosen, 1):
        begin_s = time.perf_counter()
        head = f"{place} of {len(chosen)}, {case.name}"
        try:
            outcome = case.run(lambda text, head=head: print(f"{head}: {text}", file=sys.stderr))
        except SystemExit as error:
            found[case.name] = {"goal": case.goal, "failed": str(error)}
            missed += 1
            print(f"{case.name}: failed: {error}", file=sys.stderr, flush=True)
            continue
        took_s = time.perf_counter() - begin_s
        found[case.name] = {"goal": case.goal, **outcome.as_json(), "took_s": took_s}
        missed += not outcome.reached
        if not asked.json:
            print(f"{case.name}: {'reached' if outcome.reached else 'missed'}: {case.goal} ({took_s:.0f} s)")
            for name, value in outcome.figures.items():
                print(f"  {name:<36} {value:12.3f}", flush=True)
    if asked.json:
        print(json.dumps(found, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
