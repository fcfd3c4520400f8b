"""How many tokens a second spark writes in a format: one stream, two threads, the median of several answers.

A number of this machine alone, and of a small model: what a step costs next to its weights counts much. So the numbers
compare formats with each other.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from twostroke import LLM, SamplingParams
from twostroke.assembly.settings.env import processor_name

PROMPT = "What is prefill?"
NEW_TOKENS, RUNS = 192, 7
THREADS = 2


def machine() -> str:
    """The processor, with the sets of instructions that kernels use."""
    return processor_name() or "a processor that does not say its name"


def tokens_per_second(model: Path, weights: str, kv: str) -> float:
    """model: a folder or a GGUF file. weights, kv: as the options are. The first answer is not counted."""
    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    threads = str(THREADS)
    with LLM(
        str(model), weights=weights, kv_format=kv, threads=threads, cache="off", device="cpu", speculate="off"
    ) as llm:
        seconds = []
        for _ in range(RUNS + 1):
            begin = time.perf_counter()
            llm.generate([PROMPT], params)
            seconds.append(time.perf_counter() - begin)
    return NEW_TOKENS / statistics.median(seconds[1:])
