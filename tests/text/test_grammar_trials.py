"""Trials of grammars: requests for the same one share a trial, its fault, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.text.kinds import make
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.trials import Trials
from twostroke.types.errors import InvalidRequest, Overloaded
from twostroke.types.grammar import Grammar

FIRST, SECOND, THIRD = Grammar.regex("first"), Grammar.regex("second"), Grammar.regex("third")


class Bench:
    """Trials that wait at a gate; `tried` is what came to it."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.tried: list[Grammar] = []
        self.trials = Trials(self.run, waiting=2, retry_s=1.0)

    def run(self, grammar: Grammar) -> str:
        self.tried.append(grammar)
        self.begun.set()
        assert self.gate.wait(20)
        if grammar == SECOND:
            raise InvalidRequest("It is wrong.", param="grammar")
        return f"source of {grammar.text}"


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.gate.set()
    made.trials.close(lambda: None)


def test_all_that_ask_for_the_same_grammar_share_one_trial(bench: Bench) -> None:
    waiting = [bench.trials.join(FIRST) for _ in range(20)]
    bench.gate.set()
    assert {each.result(20) for each in waiting} == {"source of first"}
    assert bench.tried == [FIRST]
    assert bench.trials.join(FIRST).result(20) == "source of first"
    assert bench.tried == [FIRST, FIRST], "what has ended is shared no more: the compiler keeps the sources"


def test_each_has_a_fault_of_its_own(bench: Bench) -> None:
    waiting = [bench.trials.join(SECOND) for _ in range(3)]
    bench.gate.set()
    faults = [each.exception(20) for each in waiting]
    assert all(isinstance(fault, InvalidRequest) and fault.what == "It is wrong." for fault in faults)
    assert len({id(fault) for fault in faults}) == 3


def test_the_bound_counts_grammars_and_not_requests(bench: Bench) -> None:
    for grammar in (FIRST, SECOND, FIRST, SECOND):
        bench.trials.join(grammar)
    with pytest.raises(Overloaded):
        bench.trials.join(THIRD)


def test_one_that_goes_away_is_nothing_to_the_others(bench: Bench) -> None:
    bench.trials.join(FIRST)
    assert bench.begun.wait(20)
    gone, stays = bench.trials.join(SECOND), bench.trials.join(SECOND)
    assert gone.cancel()
    with pytest.raises(Overloaded):
        bench.trials.join(THIRD)
    assert stays.cancel()
    waits = bench.trials.join(THIRD)  # the place of the second grammar is free again
    bench.gate.set()
    assert waits.result(20) == "source of third"
    assert bench.tried == [FIRST, THIRD], "no thread waited for the second grammar"


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
