"""DRY on texts that repeat themselves all along: the same penalties, in work that grows with the text alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sampling.test_samplers import published_dry
from tests.tiers import fewer
from twostroke.runner.sampling.samplers import dry as dry_module
from twostroke.runner.sampling.samplers import runs
from twostroke.runner.sampling.samplers.dry import Dry
from twostroke.runner.sampling.samplers.runs import same_beginnings
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams

MOST_FOR_A_TOKEN = 20


def dry(breakers: frozenset[int] = frozenset()) -> Dry:
    return Dry(0.8, 1.75, 2, -1, breakers)


def repeated(piece: int, size: int) -> list[int]:
    return [place % piece for place in range(size)]


@pytest.mark.parametrize("piece", [1, 2, 7, 100])
@pytest.mark.parametrize("breakers", [frozenset[int](), frozenset({0}), frozenset({3})])
def test_a_text_of_one_piece_again_and_again(piece: int, breakers: frozenset[int]) -> None:
    for size in (2, 3, piece + 1, 300):
        tokens = repeated(piece, size)
        assert dry(breakers).repetitions(tokens) == published_dry(tokens, set(breakers), -1)


def test_both_ways_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(3)
    for _ in range(300):
        tokens = dice.integers(0, dice.integers(1, 5), dice.integers(2, 60)).tolist()
        breakers = frozenset(dice.integers(0, 9, 2).tolist()) - {tokens[-1]}
        one_by_one = runs.runs_at_end(tokens, breakers)
        with monkeypatch.context() as patch:
            patch.setattr(runs, "_MOST_COMPARED", 0)
            assert runs.runs_at_end(tokens, breakers) == one_by_one, (tokens, breakers)
            assert dry(breakers).repetitions(tokens) == published_dry(tokens, set(breakers), -1), (tokens, breakers)


def planned(request: Request, known: list[int], guesses: int = 0) -> PlannedSequence:
    """Returns a sequence that decodes. guesses: the number of known tokens that are guesses, or that came after the
    plan was made."""
    drafts = (0,) * guesses
    return PlannedSequence(request, 0, len(known), known, ((0,),), True, Role.DECODE, draft_token_ids=drafts)


def same(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("last", [-1, 30])
@pytest.mark.parametrize("allowed", [0, 1, 2, 4])
def test_runs_that_are_kept_are_those_of_the_tokens_alone(
    last: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences grow by one token or several, take turns, have guesses that are right or wrong, are given up and begun
    again under the same name, and lose their kept runs to others."""
    monkeypatch.setattr(dry_module, "LEAST_TOKENS", 4)
    monkeypatch.setattr(runs, "MOST_KEPT_TOKENS", 150)
    dice = np.random.default_rng(7 + allowed)
    link = Dry(0.8, 1.75, allowed, last, frozenset({3}))
    going: dict[str, tuple[Request, list[int]]] = {}
    for _ in range(fewer(3000, quick=400)):
        name = str(dice.integers(3))
        if name not in going or dice.random() < 0.02:
            prompt = tuple(dice.integers(0, 6, dice.integers(1, 40)).tolist())
            known = list(prompt)
            going[name] = Request(name, name, prompt, SamplingParams(), 9, 999, frozenset(), 0.0), known
        request, known = going[name]
        known += dice.integers(0, 6, dice.choice([0, 1, 1, 1, 3, 40], p=[0.05, 0.3, 0.3, 0.2, 0.1, 0.05])).tolist()
        assert same(link.lowered_in(planned(request, known)), link.lowered(known))
        guessed = list(known)
        for guesses in range(1, int(dice.integers(1, 4))):
            guessed.append(int(dice.integers(0, 6)))
            assert same(link.lowered_in(planned(request, guessed, guesses)), link.lowered(guessed))
        if dice.random() < 0.1:  # its list is another object, as after a branch of a beam
            going[name] = request, list(known)
        if dice.random() < 0.1:
            del known[int(dice.integers(len(request.prompt_token_ids), len(known) + 1)) :]
            going[name] = request, [*known, *dice.integers(0, 6, dice.integers(0, 4)).tolist()]


def test_a_kept_row_costs_no_look_at_old_tokens() -> None:
    """After the first row, a token of the sequence is compared only as one of an array."""
    tokens: Any = [Counted(token) for token in repeated(50, 2000)]
    request = Request("r", "g", tuple(tokens[:1000]), SamplingParams(), 9, 9999, frozenset(), 0.0)
    link, known = dry(), tokens[:1500]
    link.lowered_in(planned(request, known))
    Counted.compared = 0
    for token in tokens[1500:]:
        known.append(token)
        link.lowered_in(planned(request, known))
    assert Counted.compared == 0
    assert same(link.lowered_in(planned(request, known)), link.lowered([int(token) for token in known]))


def test_same_beginnings() -> None:
    assert same_beginnings([1, 2, 1, 2, 1, 3]) == [6, 0, 3, 0, 1, 0]
    assert same_beginnings([]) == [] and same_beginnings([5, 5]) == [2, 1]


class Counted(int):
    """A token that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) != other

    __hash__ = int.__hash__


@pytest.mark.parametrize("piece", [1, 2, 50, 1000])
def test_the_work_grows_with_the_text_and_not_with_its_square(piece: int) -> None:
    """One token 8,192 times took 33 million comparisons, which is seconds in which no other request got a token."""
    tokens: Any = [Counted(token) for token in repeated(piece, 8192)]
    Counted.compared = 0
    found = dry().repetitions(tokens)
    assert found and Counted.compared < MOST_FOR_A_TOKEN * len(tokens)
