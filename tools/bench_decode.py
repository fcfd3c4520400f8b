"""Decode steps of one stream in turn with a loop that only reads memory, on the real engine.

A shared machine's reading rate changes within seconds, so a decode rate and a limit measured one after the other say
little. Here each burst of steps is set next to the loop's rate right before and after it; the median of these shares is
printed. The loop empties the caches of all that Python needs between two steps, so a burst is several steps: decoding
never stops for it.

    python tools/bench_decode.py MODEL [--weights int8 int4] [--kv bf16 int8] [--contexts 512 4096] [--bursts 16]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from twostroke.assembly.settings.config import kv_kind
from twostroke.backends.cpu.limits import LimitMeter, Limits
from twostroke.lab.bench.cases import bound, decode
from twostroke.llm import LLM
from twostroke.ops.quant.formats import weight_format
from twostroke.types.output import Prompt
from twostroke.types.sampling_params import SamplingParams

WARM_STEPS = 4
BURST_STEPS = 4
THREADS = 2


@dataclass(frozen=True)
class Share:
    """step_s, read_bytes_per_s: medians. share: of the bytes a second that a step read in the loop's, the median."""

    weights: str
    kv: str
    context: int
    step_s: float
    read_bytes_per_s: float
    share: float


def measure(model: str, weights: str, kv: str, contexts: Sequence[int], bursts: int, meter: LimitMeter) -> list[Share]:
    """One engine, context by context."""
    longest = max(contexts) + 2 * bursts * BURST_STEPS
    settings: dict[str, Any] = {"context": longest, "threads": THREADS, "kv_memory": "512MB", "kv_format": kv}
    llm = LLM(model, weights=weights, max_sequences=2, speculate="off", **settings)
    try:
        llm.settle()
        return [_share(llm, weights, kv, context, bursts, meter) for context in contexts]
    finally:
        llm.close()


def _share(llm: LLM, weights: str, kv: str, context: int, bursts: int, meter: LimitMeter) -> Share:
    steps = bursts * BURST_STEPS
    ids = tuple(int(i) for i in np.random.default_rng(context).integers(10, llm.spec.vocab_size, context))
    greedy = SamplingParams(temperature=0.0, max_tokens=WARM_STEPS + steps, ignore_eos=True)
    times_s, rates = [], []
    deltas = iter(llm.engine.stream([Prompt(ids, greedy)]))
    for _ in range(WARM_STEPS):
        next(deltas)
    rates.append(meter.read_rate())
    for _ in range(bursts):
        began_s = time.perf_counter()
        for _ in range(BURST_STEPS):
            next(deltas)
        times_s.append((time.perf_counter() - began_s) / BURST_STEPS)
        rates.append(meter.read_rate())
    a_byte_a_second = Limits(THREADS, meter.level, 1.0, math.inf, math.inf)
    found = bound(decode(1, context, 2 * steps), llm.spec, weight_format(weights), kv_kind(kv), a_byte_a_second)
    assert found is not None
    step_bytes = 1 / found.tokens_per_s
    shares = [
        step_bytes / step_s / ((before + after) / 2)
        for step_s, before, after in zip(times_s, rates[:-1], rates[1:], strict=True)
    ]
    middle = statistics.median
    return Share(weights, kv, context, middle(times_s), middle(rates), middle(shares))


def table(found: Sequence[Share]) -> str:
    """Markdown."""
    lines = [
        "| weights | K and V | context | a step | reading meanwhile | of it |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in found:
        measured = f"{1e3 * row.step_s:.1f} ms | {row.read_bytes_per_s / 1e9:.1f} GB/s | {row.share:.0%}"
        lines.append(f"| {row.weights} | {row.kv} | {row.context} | {measured} |")
    return "\n".join(lines)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--weights", nargs="+", default=["int8", "int4"])
    parser.add_argument("--kv", nargs="+", default=["bf16", "int8"])
    parser.add_argument("--contexts", nargs="+", type=int, default=[512, 4096])
    parser.add_argument("--bursts", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    meter = LimitMeter(THREADS, time.perf_counter)
    found = []
    for weights in asked.weights:
        for kv in asked.kv:
            found += measure(asked.model, weights, kv, asked.contexts, asked.bursts, meter)
    meter.close()
    print(json.dumps([asdict(row) for row in found]) if asked.json else table(found))


if __name__ == "__main__":
    main()
