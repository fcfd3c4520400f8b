"""Times of steps read the same before and after they are packed, and so does the account of a long answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.cost.history.step_history import MAX_RUN_STEPS
from twostroke.cost.history.step_times import BLOCK_STEPS, StepTimes

from .test_ledger import check
from .virtual import Lab, text


@given(st.lists(st.sampled_from(["step", "end", "pack"]), max_size=60))
def test_packed_or_not_they_read_the_same(does: list[str]) -> None:
    times = StepTimes()
    told: list[list[float]] = []
    for number, what in enumerate(does):
        if what == "step" and times.num_ended == len(times):
            told.append([number, number + 0.5, 0.25, 0.125, number % 3, number + 0.5])
            times.recent.append((*told[-1][:4], number % 3, 0.1))
        elif what == "end" and times.num_ended < len(times):
            told[-1][5] = number + 0.75
            times.ends.append(number + 0.75)
        elif what == "pack":
            times.pack()
            assert not times.recent and not times.ends and times.num_ended == len(times)
        assert [list(times.at(offset)) for offset in range(len(times))] == told
        assert len(times) - times.num_ended in (0, 1)


@pytest.mark.parametrize("reader_s", [0.0, 0.003])
def test_an_answer_of_many_blocks_and_runs(reader_s: float) -> None:
    """Two streams. One ends in the middle of a block, and one after the longest run."""
    lab = Lab()
    long = MAX_RUN_STEPS + 2 * BLOCK_STEPS + 7
    lab.request(0.0, "long", text(1, 20), long)
    lab.request(0.0, "short", text(2, 20), BLOCK_STEPS + 31)
    steps = 0
    while lab._actions or lab.stepper.has_work:
        while lab._actions:
            lab._actions.pop(0)[2]()
        lab.deltas += lab.stepper.step() or []
        steps += 1
        lab.clock.now += reader_s
        lab.ledger.away(reader_s)
    for name, count in (("long", long), ("short", BLOCK_STEPS + 31)):
        account = lab.account(f"{name}/0")
        check(account)
        assert account.parts.client_stall_s == pytest.approx(reader_s * (count - 1))
        assert len(account.sample) == (2 if name == "short" else 1)
    records = list(lab.ledger.history.records())
    assert [record.step_id for record in records] == list(range(1, steps + 1)) and lab.ledger.num_steps == steps
    assert all(left.end_s < right.begin_s for left, right in zip(records, records[1:], strict=False))
    busy_s = sum(record.model_s + record.sampling_s for record in records)
    parts = lab.account("long/0").parts
    assert parts.own_prefill_s + parts.decode_s + parts.others_prefill_s == pytest.approx(busy_s)
    assert [run.num_steps for run in lab.ledger.history._runs][-1] < MAX_RUN_STEPS
    assert max(run.num_steps for run in lab.ledger.history._runs) <= MAX_RUN_STEPS
