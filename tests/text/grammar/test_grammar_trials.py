"""Trials of grammars: requests for the same grammar share a trial and its fault, and nothing else. Hard ones have a
lane of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S
from tests.text.kinds import make
from twostroke.text.grammar.compiler import GrammarCompiler, GrammarLimits
from twostroke.text.grammar.trials import Sources, TooHard, Trials
from twostroke.types.errors import BackendError, InvalidRequest, Overloaded
from twostroke.types.grammar import Grammar

FIRST, SECOND, THIRD, FOURTH = (Grammar.regex(text) for text in ("first", "second", "third", "fourth"))
HARD, HARDER = Grammar.regex("hard"), Grammar.regex("harder")


class Gated:
    """A lane whose trials wait at a gate. `tried`: the trials that came to it."""

    def __init__(self, last: bool) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.last = last
        self.tried: list[Grammar] = []
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def close(self) -> None:
        self.calls.append("close")

    def sources(self, grammar: Grammar) -> Sources:
        self.tried.append(grammar)
        self.begun.set()
        assert self.gate.wait(PATIENCE_S)
        if not self.last and grammar.text.startswith("hard"):
            raise TooHard
        if grammar == SECOND:
            raise InvalidRequest("It is wrong.", param="grammar")
        return (f"source of {grammar.text}",)


class Bench:
    def __init__(self) -> None:
        self.quick, self.slow = Gated(last=False), Gated(last=True)
        self.trials = Trials((self.quick, self.slow), waiting=2, retry_s=1.0)

    def open(self) -> None:
        self.quick.gate.set()
        self.slow.gate.set()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.open()
    made.trials.close()
    assert made.quick.calls == made.slow.calls == ["start", "close"]


def test_all_that_ask_for_the_same_grammar_share_one_trial(bench: Bench) -> None:
    waiting = [bench.trials.join(FIRST) for _ in range(20)]
    bench.open()
    assert {each.result(20) for each in waiting} == {("source of first",)}
    assert bench.quick.tried == [FIRST]
    assert bench.trials.join(FIRST).result(20) == ("source of first",)
    assert bench.quick.tried == [FIRST, FIRST], "what has ended is shared no more: the compiler keeps the sources"


def test_each_has_a_fault_of_its_own(bench: Bench) -> None:
    waiting = [bench.trials.join(SECOND) for _ in range(3)]
    bench.open()
    faults = [each.exception(20) for each in waiting]
    assert all(isinstance(fault, InvalidRequest) and fault.what == "It is wrong." for fault in faults)
    assert len({id(fault) for fault in faults}) == 3


def test_where_too_many_wait_the_oldest_is_refused_and_the_newest_is_first(bench: Bench) -> None:
    at_work = bench.trials.join(FIRST)
    assert bench.quick.begun.wait(PATIENCE_S)
    waiting = {grammar: bench.trials.join(grammar) for grammar in (SECOND, THIRD, FOURTH)}
    assert isinstance(waiting[SECOND].exception(PATIENCE_S), Overloaded)
    bench.open()
    assert [each.result(20)[0] for each in (at_work, waiting[THIRD], waiting[FOURTH])] == [
        f"source of {grammar.text}" for grammar in (FIRST, THIRD, FOURTH)
    ]
    assert bench.quick.tried == [FIRST, FOURTH, THIRD]


def test_short_texts_are_tried_first_and_long_ones_are_refused_first(bench: Bench) -> None:
    long, longer = Grammar.regex("a" * 100), Grammar.regex("b" * 300)
    at_work = bench.trials.join(FIRST)
    assert bench.quick.begun.wait(PATIENCE_S)
    waiting = {grammar: bench.trials.join(grammar) for grammar in (THIRD, longer, long)}
    assert isinstance(waiting[longer].exception(PATIENCE_S), Overloaded)
    bench.open()
    assert all(each.result(20) for each in (at_work, waiting[THIRD], waiting[long]))
    assert bench.quick.tried == [FIRST, THIRD, long]


def test_one_that_has_no_place_when_it_comes_is_refused(bench: Bench) -> None:
    at_work = bench.trials.join(FIRST)
    assert bench.quick.begun.wait(PATIENCE_S)
    waiting = [bench.trials.join(grammar) for grammar in (THIRD, FOURTH)]
    assert isinstance(bench.trials.join(Grammar.regex("b" * 300)).exception(PATIENCE_S), Overloaded)
    bench.open()
    assert all(each.result(20) for each in (at_work, *waiting))


def test_an_easy_grammar_does_not_wait_for_hard_ones(bench: Bench) -> None:
    bench.quick.gate.set()
    hard = [bench.trials.join(HARD), bench.trials.join(HARDER)]
    assert bench.slow.begun.wait(PATIENCE_S)
    assert bench.trials.join(FIRST).result(20) == ("source of first",)
    assert not any(each.done() for each in hard)
    bench.slow.gate.set()
    assert {each.result(20)[0] for each in hard} == {"source of hard", "source of harder"}


def test_one_that_joins_a_hard_trial_shares_it(bench: Bench) -> None:
    bench.quick.gate.set()
    first = bench.trials.join(HARD)
    assert bench.slow.begun.wait(PATIENCE_S)
    second = bench.trials.join(HARD)
    bench.slow.gate.set()
    assert first.result(20) == second.result(20) and bench.slow.tried == [HARD]


def test_one_that_goes_away_is_nothing_to_the_others(bench: Bench) -> None:
    bench.trials.join(FIRST)
    assert bench.quick.begun.wait(PATIENCE_S)
    gone, stays = bench.trials.join(SECOND), bench.trials.join(SECOND)
    assert gone.cancel()
    others = [bench.trials.join(THIRD)]
    assert stays.cancel()
    others.append(bench.trials.join(FOURTH))  # the place of the second grammar is free again
    bench.open()
    assert [each.result(20)[0] for each in others] == ["source of third", "source of fourth"]
    assert SECOND not in bench.quick.tried, "no thread waited for the second grammar"


def test_what_waits_when_the_trials_close_is_told(bench: Bench) -> None:
    at_work = bench.trials.join(FIRST)
    assert bench.quick.begun.wait(PATIENCE_S)
    waiting = bench.trials.join(THIRD)
    closing = threading.Thread(target=bench.trials.close)
    closing.start()
    assert isinstance(waiting.exception(20), BackendError)
    bench.open()
    closing.join(PATIENCE_S)
    assert at_work.result(20) == ("source of first",)
    with pytest.raises(BackendError):
        bench.trials.join(SECOND)


def test_a_grammar_that_needs_more_than_the_quick_lane_gives_is_compiled_in_the_slow_one() -> None:
    tokenizer = make("byte_level")
    limits = GrammarLimits(quick_s=0.001, compile_s=60.0)
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids, limits)
    heavy = {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": i + 9} for i in range(300)}}
    try:
        assert compiler.compile(Grammar.json_schema(heavy)).bits()
    finally:
        compiler.close()


def test_a_cancelled_compilation_frees_its_place_and_leaves_others_theirs() -> None:
    tokenizer = make("byte_level")
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    try:
        asked = [compiler.submit(Grammar.regex("[a-z]{1,9}"), 2) for _ in range(20)]
        cancelled = [each.cancel() for each in asked[::2]]
        assert any(cancelled)
        for future in asked[1::2]:
            assert len(future.result(60)) == 2
    finally:
        compiler.close()


class Unready(Gated):
    """A lane whose start fails in an unexpected way."""

    def start(self) -> None:
        raise AttributeError("no such thing")


def test_a_lane_that_cannot_start_leaves_no_request_waiting() -> None:
    quick, slow = Unready(last=False), Unready(last=True)
    trials = Trials((quick, slow), waiting=2, retry_s=1.0)
    quick.gate.set()
    slow.gate.set()
    assert trials.join(FIRST).result(20) == ("source of first",)
    assert trials.join(HARD).result(20) == ("source of hard",)
    trials.close()
