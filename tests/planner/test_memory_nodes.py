"""What a plan says of a machine with several memory nodes: a rank or a replica on each, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planner.figures import LLAMA3_70B, spec_of
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.expect import expect
from twostroke.lab.planner.memory_nodes import node_words
from twostroke.lab.planner.target import guessed_target
from twostroke.types.errors import TwostrokeError
from twostroke.types.spec.hardware_guess import guessed_cpu


@pytest.mark.parametrize(
    ("nodes", "memory_gb", "concurrency", "flag", "reason"),
    [
        (1, 512, 8, "", ""),
        (2, 512, 1, "--tensor-parallel 2", "would leave nodes"),
        (2, 512, 8, "--replicas 2", "exchange nothing"),
        (2, 128, 8, "--tensor-parallel 2", "2 copies of the weights need"),
        (8, 1024, 64, "--replicas 8", "88% of its memory from other nodes"),
        (8, 512, 64, "--tensor-parallel 8", "8 copies of the weights need"),
    ],
)
def test_ranks_or_replicas_by_requests_and_memory(
    nodes: int, memory_gb: int, concurrency: int, flag: str, reason: str
) -> None:
    spec = spec_of(LLAMA3_70B)
    ask = make_ask(spec, "int8", None, 2048, None, concurrency, None, None, None)
    target = guessed_target(guessed_cpu(64, "avx512"), memory_gb * 10**9, TwostrokeError("busy"))
    target = replace(target, nodes=nodes)
    words = node_words(target, ask, expect(spec, ask, target).room)
    assert (flag in words and reason in words) if flag else words == ""
