"""Frames of steps: a member reads exactly what the leader planned, whatever came before."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.cost.machines import SPEC
from twostroke.distributed.ranks.frames import RankGiven, RankRow, RankStep, decode, encode
from twostroke.distributed.ranks.step_changes import StepDecoder, StepEncoder
from twostroke.distributed.ranks.step_rows import FRAME_BYTES, fill, given_frames
from twostroke.models.common.registry import read_model
from twostroke.ops.passes.with_given_rows import taken_rows, with_given_rows
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.images.step_images import ImageInputs, PlacedRows, ShownRows, StepImages
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import KVKind


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


def test_image_rows_travel_in_small_frames() -> None:
    dice = np.random.default_rng(3)
    pieces, width, steps = 3, 700, 900
    shown = (
        ShownRows(2, 0, dice.normal(size=(300, pieces * width)).astype(np.float32)),
        ShownRows(400, 900, dice.normal(size=(1, pieces * width)).astype(np.float32)),
    )
    placed = (PlacedRows(7, dice.integers(0, 99, (3, 20)).astype(np.int32)),)
    images = StepImages(shown, placed)
    found = np.zeros((pieces, steps, width), np.float32)
    for frame in given_frames(images, pieces):
        assert len(encode(frame)) < FRAME_BYTES + 100
        given = decode(encode(frame))
        numbers = np.frombuffer(given.numbers, np.float32).reshape(-1, width)
        found[given.piece, given.first : given.first + len(numbers)] = numbers
    for each in shown:
        at = slice(each.first, each.first + len(each.numbers))
        assert (np.concatenate(found[:, at], axis=1) == each.numbers).all()
        found[:, at] = 0.0
    assert not found.any()
    step = decode(encode(StepEncoder().step(Plan(1, ()), images)))
    assert [(each.first, each.count, each.end) for each in step.shown] == [(2, 300, 0), (400, 1, 900)]
    assert [(each.first, each.places) for each in step.placed] == [(7, placed[0].places.tobytes())]


def test_image_rows_that_no_step_has_are_refused() -> None:
    model = read_model(SPEC)
    seeing = with_given_rows(model)
    taken = taken_rows(seeing.program, seeing.program)
    memory = StepMemory(seeing.program, {}, {}, KVKind.F32, MemorySizes(4, 64, 32, 4))
    inputs, width = ImageInputs(memory, taken), model.hidden_size
    fill(RankGiven(0, 30, np.ones((2, width), np.float32).tobytes()), inputs)
    for piece, first, rows in ((1, 0, 1), (-1, 0, 1), (0, 31, 2), (0, -1, 1)):
        with pytest.raises(ValueError, match=r"of an image row|no rows of a step"):
            fill(RankGiven(piece, first, np.ones((rows, width), np.float32).tobytes()), inputs)
    with pytest.raises(ValueError, match="reshape"):
        fill(RankGiven(0, 0, b"1234"), inputs)
