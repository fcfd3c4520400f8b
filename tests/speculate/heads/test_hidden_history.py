"""Hidden states that wait to be read: the positions that they belong to, and those that are given up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.speculate.texts import request
from twostroke.ops.step_memory import StepSizes
from twostroke.runner import ahead
from twostroke.runner.ahead import HiddenHistory
from twostroke.runner.hidden_rows import LastRows
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.result import SampledToken


class Rows:
    """A memory whose value contains the numbers of its rows."""

    def numbers(self, value: Any, sizes: StepSizes) -> Any:
        count = sizes.logit_rows if value == "logit rows" else sizes.tokens
        return np.repeat(np.arange(count, dtype=np.float32)[:, None], 2, axis=1)


def step(*sequences: PlannedSequence) -> tuple[Plan, StepSizes]:
    plan = Plan(1, sequences)
    return plan, StepSizes(plan.num_tokens, len(sequences), sum(each.sampled_rows for each in sequences))


def decoding(name: str, known: list[int], draft: tuple[int, ...] = ()) -> PlannedSequence:
    rows = 1 + len(draft)
    return PlannedSequence(request(name), len(known) - 1, rows, known, (), True, Role.DECODE, draft_token_ids=draft)


def tokens(*ids: int) -> tuple[SampledToken, ...]:
    return tuple(SampledToken(token_id) for token_id in ids)


def history() -> HiddenHistory:
    return HiddenHistory(Rows(), (None,), lambda each: each.request_id != "off")  # type: ignore[arg-type]


def taken(made: HiddenHistory, name: str, start: int, count: int) -> list[float]:
    out = np.empty((count, 2), np.float32)
    made.take(name, start, out)
    return [float(row[0]) for row in out]


def test_positions_of_right_guesses_count_and_others_do_not() -> None:
    made = history()
    prompt = PlannedSequence(request("a"), 0, 3, [5, 6, 7], (), True, Role.PREFILL)
    made.read(*step(prompt), {"a": tokens(8)})
    made.read(*step(decoding("off", [1]), decoding("a", [5, 6, 7, 8], (9, 10))), {"off": tokens(1), "a": tokens(9, 4)})
    assert taken(made, "a", 0, 6) == [0, 1, 2, 1, 2, 0]  # position 5 was a wrong guess
    assert made.num_bytes == 0
    assert taken(made, "off", 0, 1) == [0]


def test_what_was_taken_is_forgotten_and_the_rest_waits() -> None:
    made = history()
    made.read(*step(PlannedSequence(request("a"), 4, 5, list(range(9)), (), False, Role.PREFILL)), {})
    assert taken(made, "a", 2, 4) == [0, 0, 0, 1]
    assert taken(made, "a", 6, 3) == [2, 3, 4]
    assert made.num_bytes == 0


def test_the_oldest_rows_beyond_the_bound_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = history()
    monkeypatch.setattr(ahead, "KEPT_BYTES", 40)
    for name in "abc":
        made.read(*step(PlannedSequence(request(name), 0, 2, [1, 2], (), True, Role.PREFILL)), {name: tokens(3)})
    assert made.num_bytes == 32
    assert taken(made, "a", 0, 2) == [0, 0] and taken(made, "c", 0, 2) == [0, 1]
    made.forget("b")
    made.forget("b")
    assert made.num_bytes == 0


def test_the_last_row_is_that_of_the_last_token() -> None:
    rows = LastRows(Rows(), "logit rows")  # type: ignore[arg-type]
    first, second = decoding("a", [1, 2], (3, 4)), decoding("b", [1])
    rows.read(*step(first, second), {"a": tokens(3, 9), "b": tokens(5)})
    found = rows.of("a", 4), rows.of("b", 2)
    assert [None if each is None else float(each[0]) for each in found] == [1.0, 3.0]
    assert rows.of("a", 3) is None and rows.of("c", 1) is None
    rows.read(*step(second), {})
    assert rows.of("b", 2) is None
