"""Measures how long samplers take for one row, compared with top-p, and DRY by the tokens that it looks at.

    python -m tools.everyday.samplers [--vocabulary 128256] [--rounds 15] [--json]

Rows fall with the logarithm of the rank: `steep`, `usual` and `flat` ones, made from a fixed seed. All samplers are
measured in turn in each round, and the median of all rounds counts. The bars: other samplers take at most 1.2 times the
time of top-p, and DRY over 8,000 tokens takes at most 50 microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np

from twostroke.backends.cpu.library import best_level
from twostroke.backends.cpu.weigh import NativeWeights
from twostroke.runner.sampling.sampler import sample
from twostroke.runner.sampling.samplers.dry import Dry
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams

BAR_SHARE, BAR_DRY_US = 1.2, 50.0
SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    "temperature": {},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 40},
    "min_p": {"min_p": 0.05},
    "typical_p": {"typical_p": 0.9},
    "top_n_sigma": {"top_n_sigma": 1.5},
    "dynatemp": {"dynatemp_range": 0.5},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.1},
    "mirostat 1": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2},
    "adaptive_p": {"adaptive_target": 0.4, "min_p": 0.02},
    "adaptive_p alone": {"adaptive_target": 0.4},
}
STEEPNESS = {"steep": 2.2, "usual": 1.3, "flat": 0.5}
TEXTS: Mapping[str, Callable[[np.random.Generator, int], Any]] = {
    "as words": lambda dice, size: np.minimum(dice.zipf(1.15, size), 30_000),
    "few tokens": lambda dice, size: dice.integers(0, 40, size),
    "one piece of 7 again and again": lambda dice, size: np.arange(size) % 7,
    "one token": lambda dice, size: np.full(size, 5),
}


def rows(vocabulary: int) -> dict[str, np.ndarray]:
    """Returns a row of logits for each steepness: falling by the logarithm of the rank, with noise, in random order."""
    dice = np.random.default_rng(1)
    ranks = np.log(1.0 + dice.permutation(vocabulary))
    noise = dice.normal(0, 1.0, vocabulary)
    return {name: (12 - steep * ranks + noise).astype(np.float32) for name, steep in STEEPNESS.items()}


def sequence(request: Request, known: list[int]) -> PlannedSequence:
    """Returns a sequence that decodes after these tokens."""
    return PlannedSequence(request, len(known) - 1, 1, known, ((0,),), True, Role.DECODE)


def request(params: SamplingParams, prompt: tuple[int, ...] = (1, 4, 4)) -> Request:
    """Returns a request with these parameters."""
    return Request("r", "g", prompt, params, 9, 1 << 20, frozenset(), 0.0)


def of_samplers(vocabulary: int, rounds: int) -> dict[str, dict[str, float]]:
    """Returns the microseconds of each sampler for each row."""
    weigh = NativeWeights(best_level())
    found: dict[str, dict[str, float]] = {}
    for row_name, logits in rows(vocabulary).items():
        plans = {name: sequence(request(SamplingParams(**fields)), [1, 4, 4, 7]) for name, fields in SAMPLERS.items()}
        times: dict[str, list[float]] = {name: [] for name in plans}
        for _ in range(rounds):
            for name, plan in plans.items():
                begin_s = time.perf_counter()
                sample(weigh, logits, plan)
                times[name].append(time.perf_counter() - begin_s)
        found[row_name] = {name: 1e6 * median(each) for name, each in times.items()}
    return found


def of_dry(length: int, rows_each: int = 200) -> dict[str, dict[str, float]]:
    """Returns the microseconds of DRY for the first row, and for each later one, by kind of text."""
    found = {}
    for name, make in TEXTS.items():
        text = [int(token) for token in make(np.random.default_rng(2), length + rows_each)]
        params = SamplingParams(dry_multiplier=0.8, dry_penalty_last_n=-1, dry_breaker_ids=frozenset({13, 25, 42}))
        own, dry, known, times = request(params, tuple(text[:length])), Dry.of(params), text[:length], []
        assert dry is not None
        for token in text[length:]:
            begin_s = time.perf_counter()
            dry.lowered_in(sequence(own, known))
            times.append(time.perf_counter() - begin_s)
            known.append(token)
        found[f"{name}, {length:,} tokens"] = {"first": 1e6 * times[0], "later": 1e6 * median(times[1:])}
    return found


def main() -> None:
    """Prints the figures, with the load of the machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=128_256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    samplers, dry = of_samplers(asked.vocabulary, asked.rounds), {**of_dry(1000), **of_dry(8000), **of_dry(32_000)}
    if asked.json:
        print(json.dumps({"load": load, "samplers_us": samplers, "dry_us": dry}))
        return
    print(f"load {load:.2f}; microseconds for a row of {asked.vocabulary:,} logits, and times top-p")
    for row_name, times in samplers.items():
        for name, each in times.items():
            share = each / times["top_p"]
            print(
                f"  {row_name:<6} {name:<17} {each:8.0f}  {share:5.2f}{'  over the bar' if share > BAR_SHARE else ''}"
            )
    print("microseconds of DRY")
    for name, both in dry.items():
        late = "  over the bar" if both["later"] > BAR_DRY_US and "8,000" in name else ""
        print(f"  {name:<48} first {both['first']:7.0f}  later {both['later']:6.1f}{late}")


if __name__ == "__main__":
    main()
