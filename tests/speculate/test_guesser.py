"""Guesser: what it verifies, what it tries without cost, and that it does not lose on texts of all kinds."""

import random
from collections.abc import Callable, Sequence

import pytest

from tests.speculate.costs import RowCost, arithmetic_bound, memory_bound
from tests.speculate.texts import request
from twostroke.engine.speculate.acceptance import Acceptance
from twostroke.engine.speculate.finished import FinishedAnswers
from twostroke.engine.speculate.guess_limiter import GuessLimiter, StepShape
from twostroke.engine.speculate.guesser import Guesser, Stream
from twostroke.engine.speculate.ngram import NgramProposer
from twostroke.engine.speculate.proposer import Guess, GuessWanted, Proposer
from twostroke.engine.speculate.suffix import SuffixProposer
from twostroke.engine.speculate.verify_time import VerifyTime
from twostroke.types.request import Request


class Told:
    """Satisfies Proposer: it guesses the given tokens and counts how often it is asked."""

    def __init__(self, name: str, token_ids: Sequence[int], token_s: float = 0.0) -> None:
        self.name, self.token_s, self.ask_s, self.spent_s = name, token_s, 0.0, 0.0
        self.computes, self.longest = token_s > 0, 8
        self.token_ids = list(token_ids)
        self.asked: list[GuessWanted] = []
        self.left: list[str] = []

    def propose(self, asks: Sequence[GuessWanted]) -> list[Guess]:
        self.asked += asks
        return [Guess(self.token_ids[: ask.most], 4) for ask in asks]

    def ended(self, request: Request, known: Sequence[int]) -> None:
        self.left.append(request.request_id)


def guesser(*proposers: Proposer, default: str = "on", seconds: Callable[[int], float] = memory_bound) -> Guesser:
    limiter = GuessLimiter(VerifyTime(RowCost(seconds)))
    return Guesser({"off": (), "on": proposers}, default, limiter, Acceptance())


def run(
    made: Guesser, texts: Sequence[Sequence[int]], prompts: Sequence[int], seconds: Callable[[int], float]
) -> tuple[float, float]:
    """The seconds of decoding these texts together, without guesses and with them. The first tokens are the prompt."""
    requests = [request(f"r{index}", prompt=text[: prompts[index]]) for index, text in enumerate(texts)]
    done = list(prompts)
    spent_s = plain_s = 0.0
    for step in range(max(map(len, texts))):
        streams_left = sum(size + step < len(text) for size, text in zip(prompts, texts, strict=True))
        plain_s += seconds(streams_left) if streams_left else 0.0
    while live := [index for index, text in enumerate(texts) if done[index] < len(text)]:
        awake = [i for i in live if done[i] >= made.asleep.get(f"r{i}", 0)]
        streams = [Stream(requests[i], texts[i][: done[i]], len(texts[i]) - done[i] - 1) for i in awake]
        found = made.guess(streams, StepShape(len(live), done[live[0]]))
        accepted = {}
        for i in live:
            tokens = found[f"r{i}"].token_ids if f"r{i}" in found else ()
            true = 0
            while true < len(tokens) and tokens[true] == texts[i][done[i] + true]:
                true += 1
            if tokens:
                accepted[f"r{i}"] = true
            done[i] += true + 1
        step_s = seconds(len(live) + sum(len(each.token_ids) for each in found.values()))
        spent_s += step_s
        made.observe(accepted, step_s)
        for i in live:
            if done[i] >= len(texts[i]):
                made.ended(requests[i], texts[i])
    return plain_s, spent_s


def random_text(seed: int, length: int, alphabet: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(alphabet) for _ in range(length)]


@pytest.mark.parametrize("seconds", [memory_bound, arithmetic_bound], ids=["memory", "arithmetic"])
@pytest.mark.parametrize("alphabet", [2, 8, 40, 4000])
@pytest.mark.parametrize("streams", [1, 4, 32])
@pytest.mark.parametrize("kind", ["ngram", "suffix"])
def test_random_text_costs_nothing(kind: str, streams: int, alphabet: int, seconds: Callable[[int], float]) -> None:
    """It takes at most 2% longer than without guesses, which is the promise of the default."""
    proposer: Proposer = NgramProposer() if kind == "ngram" else SuffixProposer(FinishedAnswers())
    texts = [random_text(7 * seed, 400, alphabet) for seed in range(streams)]
    plain_s, spent_s = run(guesser(proposer, seconds=seconds), texts, [40] * streams, seconds)
    assert spent_s <= 1.02 * plain_s


@pytest.mark.parametrize("kind", ["ngram", "suffix"])
def test_a_copy_is_written_several_times_as_fast(kind: str) -> None:
    proposer: Proposer = NgramProposer() if kind == "ngram" else SuffixProposer(FinishedAnswers())
    source = random_text(1, 400, 4000)
    made = guesser(proposer)
    plain_s, spent_s = run(made, [source + [9, 9] + source[100:]], [402], memory_bound)
    assert spent_s < plain_s / 3
    assert made.totals.accepted > 200
    assert made.totals.won_s - made.totals.lost_s == pytest.approx(plain_s - spent_s, rel=0.1)


def test_the_second_answer_is_guessed_from_the_first() -> None:
    answer = random_text(2, 200, 4000)
    made = guesser(SuffixProposer(FinishedAnswers()))
    run(made, [[1, 2, *answer]], [2], memory_bound)
    plain_s, spent_s = run(made, [[3, 4, *answer]], [2], memory_bound)
    assert spent_s < plain_s / 3


def test_a_stream_that_cannot_be_guessed_is_asked_for_seldom() -> None:
    proposer = Told("p", [1, 2, 3])
    text = [5] * 400
    run(guesser(proposer), [text], [2], memory_bound)
    assert len(proposer.asked) < 400 / 6


def test_what_computes_guesses_is_probed_very_seldom_where_they_fail() -> None:
    proposer = Told("p", [1, 2, 3], token_s=1e-3)
    run(guesser(proposer), [[5] * 1000], [2], memory_bound)
    asked_tokens = sum(ask.most for ask in proposer.asked)
    assert asked_tokens < 1000 * 0.1


def test_the_first_proposer_that_knows_anything_guesses() -> None:
    silent, loud, last = Told("silent", []), Told("loud", [7]), Told("last", [8])
    found = guesser(silent, loud, last).guess([Stream(request(), [1, 2], 5)], StepShape(1, 2))
    assert found["a"].token_ids == [7]
    assert found["a"].proposer == "loud"
    assert silent.asked and not last.asked


def test_a_request_chooses_its_own_way() -> None:
    proposer = Told("p", [7])
    streams = [Stream(request("on", speculate="on"), [1, 2], 5), Stream(request("off", speculate="off"), [1, 2], 5)]
    assert guesser(proposer, default="off").guess(streams, StepShape(2, 2)).keys() == {"on"}
    assert guesser(proposer).guess([Stream(request("none"), [1, 2], 5)], StepShape(1, 2)).keys() == {"none"}


def test_no_guess_where_there_is_no_room() -> None:
    proposer = Told("p", [7, 8, 9])
    made = guesser(proposer)
    assert made.guess([Stream(request(), [1, 2], 0)], StepShape(1, 2)) == {}
    assert not proposer.asked
    assert made.guess([Stream(request(), [1, 2], 2)], StepShape(1, 2))["a"].token_ids == [7, 8]
    assert made.guess([Stream(request("b"), [1, 2], 9)], StepShape(1, 2, room_rows=1))["b"].token_ids == [7]


def test_who_has_ended_is_forgotten_by_all() -> None:
    proposer = Told("p", [7])
    made = guesser(proposer)
    made.guess([Stream(request(), [1, 2], 5)], StepShape(1, 2))
    made.ended(request(), [1, 2, 7])
    assert proposer.left == ["a"]
    made.observe({"a": 1}, 1e-2)  # for a request that was aborted while its step ran
    assert made.totals.guessed == 0


def test_steps_that_say_nothing_of_others_teach_no_times() -> None:
    made = guesser(Told("p", [7]))
    made.guess([Stream(request(), [1, 2], 5)], StepShape(1, 2))
    made.observe({"a": 1}, 0.0)
    assert (made.totals.guessed, made.totals.accepted, made.totals.steps) == (1, 1, 1)
    made.observe({}, 5.0)  # no guess was wanted in this step
    assert made.guess([Stream(request("b"), [1, 2], 5)], StepShape(1, 2)).keys() == {"b"}


def test_texts_of_salts_that_were_not_used_for_longest_are_dropped() -> None:
    answers = FinishedAnswers(20)
    for number in range(9):
        answers.add(f"salt {number}", [1] * 8)
        assert answers.num_tokens <= 20
    kept = [number for number in range(9) if list(answers.texts(f"salt {number}"))]
    assert kept == [7, 8] and len(answers._salts) == 2
