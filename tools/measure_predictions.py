"""Compares predicted and measured prefill and decode on one thread, by CPU time: for a machine with shared cores.

    python tools/measure_predictions.py spark --rounds 3

`twostroke bench predict` compares by the wall clock, which needs quiet cores. A thread's CPU time leaves out the time
of other programs, except for their use of memory bandwidth and caches. So the doctor and the engine get the CPU time as
their clock. They use one thread, because threads that wait for one another would count their waiting.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

time.perf_counter = time.process_time  # before anything is imported that keeps it

from twostroke.cost.calibration import Calibration  # noqa: E402
from twostroke.lab.bench.phases import PhasesAsked  # noqa: E402
from twostroke.lab.bench.predict import Comparison, compare, table  # noqa: E402
from twostroke.lab.planner.doctor.examine import examine  # noqa: E402
from twostroke.lab.planner.doctor.machine import ThisMachine  # noqa: E402
from twostroke.lab.planner.model_config import read_model  # noqa: E402
from twostroke.llm import LLM  # noqa: E402

NEW_TOKENS = 16


def measure(model: str, weights: str, calibration: Calibration, rounds: int) -> list[Comparison]:
    """Compares prompts of 128, 512 and 2,048 tokens (or the longest context), and 1 to 16 streams at a context of 512
    tokens."""
    longest = min(2048, read_model(model).spec.max_positions - NEW_TOKENS)
    asked = PhasesAsked((128, 512, longest), (1, 4, 8, 16), 512, NEW_TOKENS, rounds)
    room: dict[str, Any] = {"context": longest + NEW_TOKENS, "max_sequences": 16}
    with LLM(model, weights=weights, threads=1, speculate="off", **room) as llm:
        return compare(llm, calibration, asked, time.process_time, print, moment=lambda: None)


def main() -> None:
    """Run the doctor where no calibration is kept, compare, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="spark")
    parser.add_argument("--weights", default="int8,int4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="Where the examination is kept, so that the next model needs none.")
    asked = parser.parse_args()
    if asked.keep is not None and asked.keep.exists():
        calibration = Calibration.from_json(json.loads(asked.keep.read_text()))
    else:
        patient = replace(ThisMachine.read(1).patient, title="one thread, CPU time")
        calibration = examine(patient, time.process_time, lambda *note: None, moment=lambda: None)
        if asked.keep is not None:
            asked.keep.write_text(json.dumps(calibration.as_json()))
    found: list[Comparison] = []
    for name in asked.weights.split(","):
        found += measure(asked.model, name, calibration, asked.rounds)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
