"""Steps that are begun early, with a function as the device: what is awaited, what is dropped, and what goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runner.test_step_inputs import new_memory
from twostroke.ops.step_memory import StepSizes
from twostroke.runner.device.early_runner import EarlyRunner
from twostroke.runner.device.rows import SAMPLE_RESULT, Rows
from twostroke.runner.device.sampler import DeviceSampler
from twostroke.types.errors import BackendError
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.result import SampledToken, StepResult
from twostroke.types.sampling.sampling_params import SamplingParams

VOCABULARY = 97


class Device:
    """Satisfies EarlyForward: the token after token t at position p is (t + p) % 97."""

    asked_bytes = 1 << 16

    def __init__(self) -> None:
        self.memory, self.slots, self.log = new_memory(), dict[int, Rows](), list[str]()
        self.fails = self.infinite = False

    def begin(self, asked: Rows, lists: Any, follows: Any, sizes: StepSizes, slot: int, result_bytes: int) -> None:
        if self.fails:
            raise BackendError("no")
        tokens = self.memory.token_ids[: sizes.tokens].copy()
        for before, pairs in follows:
            tokens[pairs[:, 0]] = self.slots[before]["token"][pairs[:, 1]]
        rows = self.memory.logit_rows[: sizes.logit_rows]
        found = np.zeros(len(rows), SAMPLE_RESULT)
        found["token"] = (tokens[rows] + self.memory.positions[rows]) % VOCABULARY
        found["best"] = found["raw_best"] = np.inf if self.infinite else 1.0
        self.slots[slot] = found
        self.log.append(f"begin {len(rows)}")

    def results(self, slot: int, row_results: Rows) -> float:
        self.log.append("wait")
        row_results[:] = self.slots[slot]
        return 1e-3


class Whole:
    """The runner of whole plans."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def execute(self, plan: Plan) -> StepResult:
        self.log.append("whole")
        made = {}
        for each in plan.sequences:
            last = each.end - 1
            made[each.request.request_id] = (SampledToken((each.known_token_ids[last] + last) % VOCABULARY),)
        return StepResult(made)


class Streams:
    """Sequences that get tokens, and the runner."""

    def __init__(self, lengths: dict[str, int], max_tokens: int = 50) -> None:
        self.device = Device()
        sampler = DeviceSampler(self.device, VOCABULARY, None)  # type: ignore[arg-type]
        whole: Any = Whole(self.device.log)
        self.runner = EarlyRunner(whole, self.device, sampler, self.device.memory, lambda: 0.0)
        self.known = {name: list(range(1, 1 + length)) for name, length in lengths.items()}
        self.requests = {
            name: Request(name, name, tuple(known), SamplingParams(), 0, max_tokens, frozenset(), 0.0)
            for name, known in self.known.items()
        }
        self.tables = {name: (tuple(range(10 * i, 10 * i + 6)),) for i, name in enumerate(lengths)}

    def step(self, *names: str) -> str:
        """Runs one plan with these sequences. Returns what the device was told."""
        planned = []
        for name in names:
            known, request = self.known[name], self.requests[name]
            start = 0 if len(known) == len(request.prompt_token_ids) else len(known) - 1
            role = Role.DECODE if start else Role.PREFILL
            planned.append(PlannedSequence(request, start, len(known) - start, known, self.tables[name], True, role))
        self.device.log.clear()
        result = self.runner.execute(Plan(1, tuple(planned)))
        for name in names:
            ((token, *_),) = result.sampled[name]
            assert token == (self.known[name][-1] + len(self.known[name]) - 1) % VOCABULARY
            self.known[name].append(token)
        return ", ".join(self.device.log)


def test_the_next_step_is_begun_before_this_one_is_waited_for() -> None:
    streams = Streams({"a": 5, "b": 20})
    assert streams.step("a", "b") == "begin 2, begin 2, wait"
    for _ in range(20):
        assert streams.step("a", "b") == "begin 2, wait"
    assert streams.step("b") == "begin 1, wait", "a has ended: its row is dropped"
    assert (streams.runner.kept, streams.runner.dropped) == (41, 1)


def test_a_newcomer_is_computed_behind_what_was_begun() -> None:
    streams = Streams({"a": 5, "b": 20, "c": 9})
    streams.step("a", "b")
    assert streams.step("a", "b", "c") == "begin 1, begin 3, wait, wait"
    assert streams.step("c", "a", "b") == "begin 3, wait", "in any order"
    assert streams.step("c", "a", "b") == "begin 3, wait"


def test_nothing_is_begun_behind_the_last_token() -> None:
    streams = Streams({"a": 5}, max_tokens=2)
    assert streams.step("a") == "begin 1, begin 1, wait"
    assert streams.step("a") == "wait"
    assert streams.step("a") == "whole"


def test_what_needs_logits_is_computed_again() -> None:
    streams = Streams({"a": 5})
    streams.step("a")
    streams.device.infinite = True
    streams.step("a")
    assert streams.step("a") == "begin 1, wait, whole"


def test_a_step_that_cannot_be_begun_fails_when_it_is_asked_for() -> None:
    streams = Streams({"a": 5})
    streams.step("a")
    streams.device.fails = True
    assert streams.step("a") == "wait", "this one was begun before"
    with pytest.raises(BackendError):
        streams.step("a")
    streams.device.fails = False
    assert streams.step("a") == "begin 1, begin 1, wait"
