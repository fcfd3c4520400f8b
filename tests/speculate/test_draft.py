"""draft: what it guesses, which positions it computes, and what happens to its pages."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.speculate.texts import request
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.speculate.draft import MOST_FAULTS, PROMPT_ROWS, DraftProposer
from twostroke.engine.speculate.proposer import NO_GUESS, Guess, GuessWanted
from twostroke.types.plan import Plan
from twostroke.types.result import SampledToken, StepResult

PAGE = 4


def counted(text: tuple[int, ...]) -> int:
    """A model that counts on."""
    return text[-1] + 1


class PagedModel:
    """An executor whose token depends on the whole text in its pages, so that a wrong position gives a wrong token."""

    def __init__(self, pages: int, model: Callable[[tuple[int, ...]], int] = counted) -> None:
        self.slots: list[int | None] = [None] * (pages * PAGE)
        self.model = model
        self.rows = self.steps = 0
        self.fails = False

    def execute(self, plan: Plan) -> StepResult:
        if self.fails:
            raise RuntimeError("broken")
        self.steps += 1
        sampled = {}
        for each in plan.sequences:
            self.rows += each.num_tokens
            assert len(each.page_ids) == -(-(each.start + each.num_tokens) // PAGE)
            places = [each.page_ids[at // PAGE] * PAGE + at % PAGE for at in range(each.start + each.num_tokens)]
            for at in range(each.start, each.start + each.num_tokens):
                self.slots[places[at]] = each.known_token_ids[at]
            text = tuple(self.slots[place] for place in places)
            assert text == tuple(each.known_token_ids[: len(text)])
            if each.samples:
                sampled[each.request.request_id] = (SampledToken(self.model(text)),)  # type: ignore[arg-type]
        return StepResult(sampled)


def proposer(
    executor: PagedModel, pages: int = 256, faults: list[Exception] | None = None, context: int = 2000
) -> tuple[DraftProposer, CacheManager]:
    cache = CacheManager(pages, PAGE)
    told = [] if faults is None else faults
    return DraftProposer(executor, cache, 8, context, lambda: 0.0, 1e-3, told.append), cache


def test_it_writes_on() -> None:
    model = PagedModel(256)
    draft, _ = proposer(model)
    assert draft.propose([GuessWanted(request(), [1, 2, 3], 4)]) == [Guess([4, 5, 6, 7])]
    assert (model.steps, model.rows) == (4, 6)


def test_what_was_accepted_is_not_computed_again() -> None:
    model = PagedModel(256)
    draft, _ = proposer(model)
    draft.propose([GuessWanted(request(), [1, 2, 3], 4)])  # 4 5 6 7, of which 4 5 6 are in its pages
    model.rows = 0
    assert draft.propose([GuessWanted(request(), [1, 2, 3, 4, 5, 6, 7, 8], 1)]) == [Guess([9])]
    assert model.rows == 2  # 7 and 8
    assert draft.propose([GuessWanted(request(), [1, 2, 3, 4, 5, 6, 7, 8, 50], 2)]) == [Guess([51, 52])]
    assert draft.propose([GuessWanted(request(), [1, 2, 3, 4, 5, 6, 7, 8, 50, 60], 2)]) == [Guess([61, 62])]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_accepted_its_guess_is_that_of_the_whole_text(seed: int) -> None:
    """Random texts of several requests with common beginnings come in random turns, and some of the guesses are
    accepted."""
    rng = random.Random(seed)

    def hashed(text: tuple[int, ...]) -> int:
        return hash(text) % 5

    model = PagedModel(60, hashed)
    draft, cache = proposer(model, 60)
    texts = {name: [1, 2, 3, 4, 5, 6, 7, 8, 9][: rng.randrange(3, 10)] for name in "abc"}
    requests = {name: request(name, prompt=text) for name, text in texts.items()}
    for _ in range(150):
        names = rng.sample("abc", rng.randrange(1, 4))
        most = rng.randrange(1, 6)
        guesses = draft.propose([GuessWanted(requests[name], texts[name], most) for name in names])
        for name, guess in zip(names, guesses, strict=True):
            expected = list(texts[name])
            for _ in guess.token_ids:
                expected.append(hashed(tuple(expected)))
            assert list(guess.token_ids) == expected[len(texts[name]) :]
            texts[name] += guess.token_ids[: rng.randrange(len(guess.token_ids) + 1)]
            texts[name].append(rng.randrange(5))
            if len(texts[name]) > 70:
                draft.ended(requests[name], texts[name])
                texts[name] = texts[name][:6]
        cache.check()
    for name in "abc":
        draft.ended(requests[name], texts[name])
    assert cache.pages_used == 0


def test_a_long_prompt_is_read_over_several_calls() -> None:
    model = PagedModel(256)
    draft, _ = proposer(model)
    wanted = [GuessWanted(request(), list(range(2 * PROMPT_ROWS + 10)), 2)]
    for _ in range(2):
        model.rows = 0
        assert draft.propose(wanted) == [NO_GUESS]
        assert model.rows == PROMPT_ROWS
    assert draft.propose(wanted)[0].token_ids == [2 * PROMPT_ROWS + 10, 2 * PROMPT_ROWS + 11]


def test_nothing_is_guessed_behind_an_end_token() -> None:
    ending = replace(request("a"), end_token_ids=frozenset([6]))
    draft, _ = proposer(PagedModel(256))
    assert draft.propose([GuessWanted(ending, [1, 2, 3], 8)]) == [Guess([4, 5])]


def test_without_pages_it_is_silent_and_forgets_sequences_that_do_not_ask() -> None:
    model = PagedModel(4)
    draft, cache = proposer(model, 4)
    first, second = request("a"), request("b")
    assert draft.propose([GuessWanted(first, list(range(10)), 3)])[0].token_ids == [10, 11, 12]
    assert draft.propose([GuessWanted(second, list(range(50, 60)), 3)])[0].token_ids == [60, 61, 62]
    both = [GuessWanted(first, list(range(10)), 3), GuessWanted(second, list(range(50, 60)), 3)]
    assert NO_GUESS in draft.propose(both)
    cache.check()
    draft, cache = proposer(model, 4, context=11)
    assert draft.propose([GuessWanted(first, list(range(10)), 3)]) == [NO_GUESS]
    assert draft.propose([GuessWanted(first, list(range(10)), 2)])[0].token_ids == [10, 11]


def test_faults_end_its_guesses_and_nothing_else() -> None:
    model, faults = PagedModel(256), list[Exception]()
    draft, cache = proposer(model, faults=faults)
    model.fails = True
    assert draft.propose([GuessWanted(request(), [1, 2, 3], 2)]) == [NO_GUESS]
    model.fails = False
    assert draft.propose([GuessWanted(request(), [1, 2, 3], 2)])[0].token_ids == [4, 5]
    model.fails = True
    for _ in range(MOST_FAULTS):
        assert draft.propose([GuessWanted(request(), [1, 2, 3], 2)]) == [NO_GUESS]
    model.fails = False
    assert draft.propose([GuessWanted(request(), [1, 2, 3], 2)]) == [NO_GUESS]
    assert len(faults) == MOST_FAULTS + 1
    assert cache.pages_used == 0


def test_tokens_that_are_not_certain_are_computed_again() -> None:
    model = PagedModel(256)
    draft, _ = proposer(model)
    asked = request()
    draft.propose([GuessWanted(asked, [1, 2, 3], 4)])
    draft.certain(asked, 3)
    model.rows = 0
    assert draft.propose([GuessWanted(asked, [1, 2, 3, 4, 5, 6], 1)]) == [Guess([7])]
    assert model.rows == 3  # 4, 5 and 6
