"""Frames of steps: a member reads exactly what the leader planned, whatever came before."""

from __future__ import annotations

import random

import pytest

from twostroke.distributed.ranks.frames import RankRow, RankStep, decode, encode
from twostroke.distributed.ranks.step_changes import StepDecoder, StepEncoder
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling_params import SamplingParams


def planned(dice: random.Random, name: str, tables: list[list[int]]) -> PlannedSequence:
    prompt = tuple(range(40))
    request = Request(name, name, prompt, SamplingParams(), 0, 9, frozenset(), 0.0)
    start, count = dice.randrange(20), dice.randint(1, 20)
    drafts = (3, 4) if dice.random() < 0.2 else ()
    samples = dice.random() < 0.5 or bool(drafts)
    known = list(range(start + count - len(drafts) if count > len(drafts) else start + 1))
    total = len(known) - start + len(drafts)
    return PlannedSequence(
        request, start, total, known, tuple(tables), samples, Role.DECODE, state_slot=dice.randrange(4),
        draft_token_ids=drafts,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_member_finds_the_plan(seed: int) -> None:
    dice = random.Random(seed)
    encoder, decoder = StepEncoder(), StepDecoder()
    tables = {str(name): [[], []] for name in range(5)}
    for number in range(60):
        for pages in tables.values():
            for table in pages:
                change = dice.random()
                if change < 0.4:
                    table.append(dice.randrange(100))
                elif change < 0.5:
                    table[:] = [-1] * dice.randrange(3) + [dice.randrange(100) for _ in range(dice.randrange(4))]
        names = dice.sample(sorted(tables), dice.randint(1, 5))
        plan = Plan(number, tuple(planned(dice, name, tables[name]) for name in names), state_copies=((0, number),))
        step = decode(encode(encoder.step(plan)))
        found = decoder.sequences(step)
        assert step.state_copies == plan.state_copies
        for mine, his in zip(plan.sequences, found, strict=True):
            assert [list(table) for table in his.tables] == [list(table) for table in mine.tables]
            assert (list(his.token_ids), his.start) == (list(mine.token_ids), mine.start)
            names_of = ("num_tokens", "sampled_rows", "state_slot", "second_text", "adapter")
            assert [getattr(his, name) for name in names_of] == [getattr(mine, name) for name in names_of]


def test_a_decode_step_of_a_long_context_is_small() -> None:
    dice, encoder = random.Random(1), StepEncoder()
    pages = list(range(4096))
    encoder.step(Plan(0, (planned(dice, "a", [pages]),)))
    pages.append(7)
    assert len(encode(encoder.step(Plan(1, (planned(dice, "a", [pages]),))))) < 120


def test_a_step_that_builds_on_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="place 3"):
        StepDecoder().sequences(RankStep([RankRow(3, 0, [1], 1, -1, None, [])]))
    with pytest.raises(ValueError, match="no frame"):
        decode(b"\x93\x01")
