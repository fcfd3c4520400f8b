"""Compares the samples that two lm-eval runs have logged, loglikelihood by loglikelihood.

    python tools/conformance/compare_samples.py RUN_1 RUN_2

The exit code is 1 when a loglikelihood differs by more than 0.0001 (4 decimals) or a greedy flag differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ALLOWED = 1e-4  # 4 decimals; the float32 that the judge adds up in has steps of 0.00006 at -600
Score = tuple[float, bool]


def scores(folder: Path) -> dict[tuple[int, int], Score]:
    """Returns {(document, choice): (loglikelihood, greedy)} of the newest run below a folder."""
    newest = max(folder.rglob("samples_*.jsonl"), key=lambda path: path.stat().st_mtime)
    found: dict[tuple[int, int], Score] = {}
    for line in newest.read_text().splitlines():
        sample = json.loads(line)
        for place, (value, greedy) in enumerate(sample["filtered_resps"]):
            found[sample["doc_id"], place] = (float(value), str(greedy) == "True")
    return found


def main(one: Path, other: Path) -> int:
    """Compares two runs and prints the figures. Returns the exit code."""
    mine, theirs = scores(one), scores(other)
    if mine.keys() != theirs.keys():
        print(f"{len(mine)} and {len(theirs)} scores: not the same documents")
        return 1
    worst = max(abs(mine[key][0] - theirs[key][0]) for key in mine)
    flags = sum(mine[key][1] != theirs[key][1] for key in mine)
    print(f"{len(mine)} loglikelihoods; largest difference {worst:.7f}; greedy flags that differ: {flags}")
    return int(worst > ALLOWED or flags > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
