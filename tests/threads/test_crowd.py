"""Far more threads than CPUs: every answer has the bits of one thread, and everything ends. `tools/study_threads.py
stress` measures times, and these tests do not."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from twostroke import LLM, SamplingParams
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import PackedWeight
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.quant.formats import weight_format

CROWD = 64
PATIENCE_S = 60.0  # a hang fails the test instead of blocking the run
PROMPTS = [[3 + number, *range(5, 5 + length)] for number, length in enumerate((1, 7, 70, 200))]
ASKED = SamplingParams(max_tokens=12, temperature=0.8, seed=3, logprobs=2, ignore_eos=True)
OPTIONS: dict[str, Any] = {"cache": "off", "kv_memory": "32MB", "context": 256, "speculate": "off"}


def answers(threads: int) -> list[Any]:
    with LLM("spark", threads=threads, **OPTIONS) as llm:
        found = llm.generate(PROMPTS, ASKED)
    return [(each.token_ids, each.logprobs) for result in found for each in result.completions]


def test_a_crowd_of_threads_answers_as_one_does() -> None:
    assert answers(CROWD) == answers(1)


def weight(kind: str, rows: int, columns: int) -> PackedWeight:
    values = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    return pack_weight(values, weight_format(kind))


@pytest.mark.parametrize("kind", ["int8", "int4", "bf16"])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_products_of_a_crowd_have_the_bits_of_one_thread(kind: str, rows: int) -> None:
    matrix = weight(kind, 320, 512)
    x = np.random.default_rng(rows).standard_normal((rows, 512)).astype(np.float32)
    found = []
    for threads in (1, CROWD):
        with closing(CpuOps(None, threads)) as ops:
            out = np.full((rows, 320), np.nan, np.float32)
            ops.linear(out, x, matrix)
            found.append(out.tobytes())
    assert found[0] == found[1]


def test_several_crowds_at_once_end_and_are_right() -> None:
    """Four threads of Python make, use and end four pools of 64 threads at the same time."""
    matrix = weight("int8", 320, 512)
    x = np.random.default_rng(0).standard_normal((5, 512)).astype(np.float32)
    with closing(CpuOps(None, 1)) as ops:
        right = np.empty((5, 320), np.float32)
        ops.linear(right, x, matrix)
    wrong: list[object] = []

    def work() -> None:
        for _ in range(3):
            with closing(CpuOps(None, CROWD)) as crowd:
                for _ in range(20):
                    out = np.empty_like(right)
                    crowd.linear(out, x, matrix)
                    if out.tobytes() != right.tobytes():
                        wrong.append(out)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads) and wrong == []
