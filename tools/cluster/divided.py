"""Compares two ranks of one thread with one process of two threads, by `twostroke bench ranks`."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from tools.cluster.case import Note, Outcome
from tools.cluster.processes import TWOSTROKE

SHARE = 0.9


@dataclass(frozen=True)
class RanksBesideThreads:
    """weights: the weight format, int8 or int4."""

    weights: str
    shape: str = "llama-3.2-1b"
    batches: str = "1,8"
    rounds: int = 3
    goal: str = f"two ranks of one thread >= {SHARE:.0%} of one process of two threads"
    minutes: float = 1.0

    @property
    def name(self) -> str:
        """See Case."""
        return f"ranks-{self.weights}"

    def run(self, note: Note) -> Outcome:
        """See Case."""
        words = ["bench", "ranks", "--shape", self.shape, "--tensor-parallel", "2", "--weights", self.weights, "--json"]
        words += ["--prompts", "512", "--batches", self.batches, "--rounds", str(self.rounds)]
        note(f"twostroke {' '.join(words)}")
        ended = subprocess.run([*TWOSTROKE, *words], stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode != 0:
            raise SystemExit("`twostroke bench ranks` has failed")
        found: dict[str, float] = {}
        for case in json.loads(ended.stdout)["cases"]:
            name = f"{case['phase']}_{case['streams']}x{case['tokens']}"
            figures = {"ratio": case["ratio"], "one_tok_s": case["whole"], "divided_tok_s": case["divided"]}
            figures |= {key: case[key] for key in ("exchange_share", "waited_share")}
            found |= {f"{name}_{key}": value for key, value in figures.items()}
        return Outcome(found, min(value for key, value in found.items() if key.endswith("_ratio")) >= SHARE)
