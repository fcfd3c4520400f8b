"""A server prepares for grammars after its first answers, and no other engine does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from twostroke.assembly import grammars
from twostroke.assembly.engine import build_heart, print_report
from twostroke.assembly.find import find_model
from twostroke.assembly.grammars import GrammarsAhead, GrammarsWhenAsked, Preparation
from twostroke.text.grammar.compiler import GrammarCompiler


class Compiler(GrammarCompiler):
    """Records what it is asked for."""

    def __init__(self) -> None:
        self.prepared = threading.Event()

    def prepare(self, made: Callable[[], object]) -> None:
        self.prepared.set()


def test_it_is_made_once_the_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "DELAY_S", 0.0)
    compiler = Compiler()
    ahead = GrammarsAhead(compiler)
    assert not compiler.prepared.is_set()
    ahead.start()
    assert compiler.prepared.wait(60)
    ahead.close()
    ahead.close()


@pytest.mark.parametrize("preparation", [GrammarsWhenAsked, GrammarsAhead])
def test_an_engine_that_ends_before_makes_nothing(preparation: Preparation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "DELAY_S", 3600.0)
    compiler = Compiler()
    with ExitStack() as closing:
        ahead = preparation(compiler)
        closing.callback(ahead.close)
        ahead.start()
    assert not compiler.prepared.is_set()
    assert "twostroke-grammars" not in {each.name for each in threading.enumerate()}


@pytest.mark.parametrize("preparation", [GrammarsWhenAsked, GrammarsAhead])
def test_an_engine_of_a_server_begins_it_when_it_is_built(
    preparation: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = threading.Event()
    monkeypatch.setattr(grammars, "DELAY_S", 0.0)
    monkeypatch.setattr(GrammarCompiler, "prepare", lambda self, made: prepared.set())
    found = find_model("spark", {"context": 64, "kv_memory": "8MB", "cache": "off"})
    with build_heart(found, None, print_report, preparation=preparation):
        assert prepared.wait(60) if preparation is GrammarsAhead else not prepared.is_set()
