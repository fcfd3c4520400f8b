"""Models with states and plans made by hand. Chunks, slots, copies of states, and other sequences do not change a
sequence's bits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families.stored import config_of, write_checkpoint
from tests.tiers import COVERING, KEPT_FAMILIES, fewer, thinned_where
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.registry import read_model
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.folder import read_folder
from twostroke.runner.step_inputs import write_plan
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker


def has_states(family: str) -> bool:
    return any(read_model(config_of(family)).program.states())


WITH_STATES = thinned_where(COVERING, has_states, "families", fewer(len(COVERING), quick=KEPT_FAMILIES))
SLOTS, PAGES = 7, 40
SIZES = MemorySizes(PAGES, 160, 200, 4, state_slots=SLOTS)
MOST_GROUPS = 2
"""The most page tables of a sequence. Models with states have pages of one kind, or pages with a window and others
without."""
Bits = dict[int, bytes]
"""The logits of a sequence by position."""


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, CpuOps]]:
    made = {threads: CpuOps(None, threads) for threads in (1, 2)}
    yield made
    for ops in made.values():
        ops.close()


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory):
    @cache
    def loaded(family: str, weights: str):
        folder = tmp_path_factory.mktemp(family)
        write_checkpoint(family, folder)
        model = read_folder(folder)
        with Checkpoint.open(folder) as checkpoint:
            return model, load_weights(checkpoint, model, format_choice(weights), NumpyPacker())

    return loaded


class Driver:
    """One memory and the plans that are run on it. Every computed position's logits are kept."""

    def __init__(self, loaded, ops: CpuOps) -> None:
        model, weights = loaded
        self._memory = StepMemory(model.program, weights.matrices, weights.vectors, KVKind.BF16, SIZES)
        self._forward, self._steps = ops.compile(model.program, self._memory), 0

    def step(self, parts: list[PlannedSequence], copies: tuple[tuple[int, int], ...] = ()) -> list[Bits]:
        plan = Plan(self._steps, tuple(parts), state_copies=copies)
        self._steps += 1
        self._memory.copy_states(plan.state_copies)
        sizes = write_plan(plan, self._memory)
        self._forward(sizes)
        found, row = [], 0
        for part in parts:
            bits: Bits = {}
            for first in range(0, part.num_tokens, 4):
                count = min(4, part.num_tokens - first)
                logits = self._forward.logits(np.arange(row + first, row + first + count, dtype=np.int32), sizes)
                bits |= {part.start + first + i: logits[i].tobytes() for i in range(count)}
            found.append(bits)
            row += part.num_tokens
        return found


def planned(index: int, tokens: list[int], start: int, count: int, slot: int) -> PlannedSequence:
    request = Request(str(index), str(index), tuple(tokens), SamplingParams(), 0, 8, frozenset(), 0.0)
    pages = tuple(10 * index + i for i in range(-(-(start + count) // PAGE_TOKENS)))
    tables = (pages,) * MOST_GROUPS
    return PlannedSequence(request, start, count, tokens, tables, True, role=Role.PREFILL, state_slot=slot)


def alone(loaded, ops: CpuOps, tokens: list[int]) -> Bits:
    """Computes the whole sequence in one step."""
    return Driver(loaded, ops).step([planned(0, tokens, 0, len(tokens), 0)], ((-1, 0),))[0]


@pytest.mark.parametrize("weights", ["f32", "int8"])
@pytest.mark.parametrize("family", WITH_STATES)
@settings(max_examples=fewer(4, quick=2), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_bits_do_not_depend_on_chunks_slots_copies_or_company(family, weights, seed, load, pools) -> None:
    dice, loaded = random.Random(seed), load(family, weights)
    texts = [[dice.randrange(loaded[0].vocab_size) for _ in range(dice.randint(1, 60))] for _ in range(3)]
    expected = [alone(loaded, pools[dice.choice([1, 2])], tokens) for tokens in texts]
    driver = Driver(loaded, pools[dice.choice([1, 2])])
    slots, done, found = dice.sample(range(SLOTS), 3), [0, 0, 0], [{}, {}, {}]
    copies = [(-1, slot) for slot in slots]
    while any(done[i] < len(texts[i]) for i in range(3)):
        parts, members = [], []
        for i in dice.sample(range(3), dice.randint(1, 3)):
            left = len(texts[i]) - done[i]
            if left:
                parts.append(planned(i, texts[i], done[i], dice.choice([1, left, dice.randint(1, left)]), slots[i]))
                members.append(i)
        for i, bits in zip(members, driver.step(parts, tuple(copies)) if parts else [], strict=True):
            found[i] |= bits
            done[i] = max(bits) + 1
        copies = [] if parts else copies
        mover, free = dice.randrange(3), [slot for slot in range(SLOTS) if slot not in slots]
        if parts and dice.random() < 0.5:  # another slot takes the state over, and the old one is spoilt
            target = dice.choice(free)
            copies = [(slots[mover], target), (-1, slots[mover])]
            slots[mover] = target
    assert found == expected


@pytest.mark.parametrize("family", WITH_STATES)
def test_a_snapshot_continues_as_the_sequence_did(family, load, pools) -> None:
    """A second sequence needs only a copy of the state at that place, and the pages, to go on from there."""
    loaded, tokens = load(family, "f32"), [(7 * i) % 90 for i in range(50)]
    driver = Driver(loaded, pools[2])
    driver.step([planned(0, tokens, 0, 32, 4)], ((-1, 4),))
    first = driver.step([planned(0, tokens, 32, 18, 4)], ((4, 6),))[0]
    second = driver.step([planned(0, tokens, 32, 18, 2)], ((6, 2), (-1, 4)))[0]
    assert first == second == {place: bits for place, bits in alone(loaded, pools[1], tokens).items() if place >= 32}
