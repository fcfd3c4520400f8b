"""How much slower or quicker the simulator is than it was at another commit, in processor time.

    python -m tools.compare_simulator_speed COMMIT [--rounds 7] [--seconds 60] [--only NAME] [--json]

COMMIT is checked out next to this tree. Each round runs tools/measure_simulator_speed.py of both trees, one after the
other, the first of them in turn, each in a process of its own: what the machine does in between meets both alike. A
line for each case has the median of the rounds' ratios, now over before, and whether both found the same to the last
bit. The exit status is 1 where a case takes over MOST_RATIO, or digests differ. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tools.ab import by_turns, ratios
from tools.measure_simulator_speed import CASES

from twostroke.assembly.settings.env import process_environment

ROOT = Path(__file__).resolve().parents[1]
MOST_RATIO = 1.03
"""What a change of the caches may cost the simulator of a model with attention alone."""
LINE = re.compile(r": (?P<times>[\d,]+) times real time, .*digest (?P<digest>\w+)")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A work tree of a commit, removed at the end. Raises CalledProcessError for one that does not exist."""
    with tempfile.TemporaryDirectory(prefix="twostroke-before-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def measured(tree: Path, case: str, seconds: float) -> tuple[float, str]:
    """(times real time, digest) of one case, by the tool and the package of `tree`."""
    command = [sys.executable, "-m", "tools.measure_simulator_speed", "--only", case, "--rounds", "3"]
    environment = process_environment() | {"PYTHONPATH": f"{tree / 'src'}:{tree}"}
    words = [*command, "--seconds", str(seconds)]
    done = subprocess.run(words, cwd=tree, env=environment, check=True, capture_output=True, text=True)
    found = LINE.search(done.stdout)
    if found is None:
        raise ValueError(f"{tree}: a line without speed and digest: {done.stdout!r}")
    return float(found["times"].replace(",", "")), found["digest"]


def compared(before: Path, case: str, rounds: int, seconds: float) -> dict[str, object]:
    """The median ratio of one case."""
    ways = {tree: lambda _, tree=tree: measured(tree, case, seconds) for tree in (ROOT, before)}
    found = by_turns(ways, rounds, warm_rounds=0)
    speeds = {tree: [speed for speed, _ in taken] for tree, taken in found.items()}
    digests = {digest for taken in found.values() for _, digest in taken}
    shares = ratios(speeds[before], speeds[ROOT])
    ratio = median(shares)
    return {
        "case": case,
        "ratio": ratio,
        "lowest": min(shares),
        "highest": max(shares),
        "same": len(digests) == 1,
        "kept": ratio <= MOST_RATIO,
    }


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", help="what to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60.0, help="that are simulated of each case")
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object a line")
    asked = parser.parse_args()
    rows = []
    with checked_out(asked.commit) as before:
        for case in asked.only or CASES:
            row = compared(before, case, asked.rounds, asked.seconds)
            rows.append(row)
            text = (
                f"{case}: {row['ratio']:.3f} of the time at {asked.commit} ({row['lowest']:.3f} to "
                f"{row['highest']:.3f}), {'the same result' if row['same'] else 'ANOTHER RESULT'}"
            )
            print(json.dumps(row) if asked.as_json else text, flush=True)
    return int(not all(row["same"] and row["kept"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
