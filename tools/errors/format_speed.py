"""Measures how many tokens a second spark writes in a format: one stream, two threads, the median of several answers.

The number holds for this machine and for a small model, where the work of a step that reads no weights counts much. So
the numbers are for comparing formats with each other.
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
    """Returns the name of the processor, with the instruction sets that the kernels use."""
    return processor_name() or "a processor that does not say its name"


def tokens_per_second(model: Path, weights: str, kv: str) -> float:
    """Returns the median of the tokens a second of several answers; the first answer is not counted. model: a folder or
    a GGUF file. weights, kv: the values of the options --weights and --kv-format."""
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
