"""Asking: where guesses do not pay no proposer is asked, and it costs next to nothing to find out that they pay
again."""

from __future__ import annotations

from collections.abc import Sequence

from tests.speculate.costs import RowCost
from tests.speculate.texts import request
from twostroke.engine.speculate.acceptance import Acceptance
from twostroke.engine.speculate.asking import PROBE_SHARE, TRUSTED_ASKS, AskRecord, ProbeBudget
from twostroke.engine.speculate.guess_limiter import GuessLimiter, StepShape
from twostroke.engine.speculate.guesser import Guesser, Stream
from twostroke.engine.speculate.ngram import NgramProposer
from twostroke.engine.speculate.proposer import Guess, GuessWanted
from twostroke.engine.speculate.timed import TimedProposer
from twostroke.engine.speculate.verify_time import VerifyTime
from twostroke.types.request import Request


class Slow:
    """Satisfies Proposer: each call takes `ask_s`, and it guesses `token_ids`."""

    name, longest, token_s = "slow", 8, 0.0

    def __init__(self, ask_s: float, token_ids: Sequence[int], computes: bool) -> None:
        self.ask_s, self.token_ids, self.computes = ask_s, token_ids, computes
        self.asks, self.spent_s = 0, 0.0

    def propose(self, asks: Sequence[GuessWanted]) -> list[Guess]:
        self.asks += len(asks)
        self.spent_s = len(asks) * self.ask_s
        return [Guess(self.token_ids[: ask.most]) for ask in asks]

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """Does nothing."""


def decode(proposer: Slow, token_id: int, steps: int, step_s: float = 1e-3, requests: int = 1) -> Guesser:
    """Decodes requests one after the other that write one token repeatedly. The seconds of asking are proposer.asks."""
    limiter = GuessLimiter(VerifyTime(RowCost(lambda rows: step_s)))
    made = Guesser({"on": (proposer,)}, "on", limiter, Acceptance())
    for index in range(requests):
        each = request(f"r{index}", prompt=[1, 2])
        known = [1, 2]
        while len(known) < steps:
            awake = len(known) >= made.asleep.get(each.request_id, 0)
            streams = [Stream(each, known, 8)] if awake else []
            found = made.guess(streams, StepShape(1, len(known)))
            tokens = found[each.request_id].token_ids if found else ()
            true = 0
            while true < len(tokens) and tokens[true] == token_id:
                true += 1
            made.observe({each.request_id: true} if tokens else {}, step_s)
            known += [token_id] * (true + 1)
        made.ended(each, known)
    return made


def test_an_ask_that_takes_longer_than_its_guesses_win_is_a_rare_probe() -> None:
    for computes in (False, True):
        wrong = Slow(0.4e-3, [9] * 8, computes)
        decode(wrong, 5, 400, requests=20)
        steps_s = 400 * 20 * 1e-3
        record_s = 150 * 0.4e-3  # it asks until the record shows that no guess is right
        assert 0 < wrong.asks * wrong.ask_s < PROBE_SHARE * steps_s + record_s, computes


def test_a_probe_that_comes_true_begins_the_guessing() -> None:
    for computes in (False, True):
        right = Slow(0.4e-3, [5] * 8, computes)
        made = decode(right, 5, 2000)
        assert made.totals.accepted > 1000, computes


def test_many_short_requests_are_not_each_asked_for() -> None:
    wrong = Slow(5e-3, [9] * 8, computes=True)
    decode(wrong, 5, 30, requests=100)
    assert wrong.asks <= TRUSTED_ASKS + 100 * 30 * 1e-3 * PROBE_SHARE / 5e-3 + 1


def test_the_record_forgets() -> None:
    record = AskRecord()
    for _ in range(500):
        record.add(0)
    assert record.tokens < 0.02
    for _ in range(100):
        record.add(2)
    assert record.tokens > 1


def test_a_budget_is_spent_once() -> None:
    budget = ProbeBudget()
    assert not budget.allows(1e-3)
    for _ in range(100):
        budget.step(1e-3)
    spared_s = 100 * 1e-3 * PROBE_SHARE
    assert budget.allows(0.9 * spared_s) and not budget.allows(0.05 * spared_s)


def test_a_timed_proposer_says_the_same_and_how_long_it_took() -> None:
    times = iter([1.0, 1.5, 2.0, 2.1, 3.0, 3.2])
    timed = TimedProposer(NgramProposer(), lambda: next(times))
    asks = [GuessWanted(request(), [1, 2, 3, 1, 2], 1)] * 2
    assert timed.propose(asks) == NgramProposer().propose(asks)
    assert (timed.spent_s, timed.ask_s) == (0.5, 0.25)
    timed.propose(asks), timed.propose(asks)
    assert timed.ask_s == (3.2 - 3.0) / 2
    assert (timed.name, timed.computes, timed.longest) == ("ngram", False, 8)
