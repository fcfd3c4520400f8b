"""Prompts to requests, events to pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twostroke.engine.sync_engine import SyncEngine
from twostroke.types.errors import InvalidRequest
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.request import FinishReason, Request

from .fakes import bench


def test_a_prompt_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench()
    book = made.stepper.loop.book
    add, added = book.add, []

    def add_two(request: Request) -> None:
        if len(added) == 2:
            raise InvalidRequest("no more")
        added.append(request)
        add(request)

    monkeypatch.setattr(book, "add", add_two)
    with pytest.raises(InvalidRequest, match="no more"):
        made.session.submit(made.prompt("q", "abc", n=3), 0.0)
    assert len(added) == 2
    assert made.is_empty()


def test_ids_are_unique_and_free_again_afterwards() -> None:
    made = bench()
    prompt = made.prompt("q", "abc")
    first = made.session.submit(replace(prompt, request_id="req-1"), 0.0)
    second = made.session.submit(prompt, 0.0)
    assert (first, second) == ("req-1", "req-2")
    with pytest.raises(InvalidRequest, match="req-1"):
        made.session.submit(replace(prompt, request_id="req-1"), 0.0)
    for name in (first, second):
        [delta] = made.session.abort(name, 1.0)
        assert (delta.request_id, delta.finish_reason) == (name, FinishReason.ABORT)
        assert made.session.abort(name, 1.0) == []
    assert made.is_empty()


def test_requests_carry_what_the_prompt_asks() -> None:
    made = bench(end_ids=frozenset({2}))
    seen: list[Request] = []
    made.executor.before = lambda plan: seen.extend(s.request for s in plan.sequences)
    prompt = made.prompt("q", "a", max_tokens=1, stop_token_ids=(9,), seed=5)
    engine = SyncEngine(made.stepper)
    engine.generate(
        [replace(prompt, cache_salt="salt", priority=3), made.prompt("r", "a", max_tokens=1, ignore_eos=True)]
    )
    by_seed = {request.seed: request for request in seen}
    assert by_seed[5].end_token_ids == {2, 9}
    assert (by_seed[5].cache_salt, by_seed[5].priority, by_seed[5].max_tokens) == ("salt", 3, 1)
    assert by_seed[100].end_token_ids == frozenset()


def test_events_of_unknown_requests_change_nothing() -> None:
    made = bench()
    ghost = FinishedEvent("ghost/0", FinishReason.STOP, 0.0, 1, 1, 0, 0, None)
    assert made.session.consume([TokenEvent("ghost/0", 5, None, 0.0), ghost], 0.0) == []


def test_a_completion_goes_on_where_the_prompt_ended() -> None:
    made = bench("byte_fallback")
    the, a = made.tokenizer.id_of("▁the"), made.tokenizer.id_of("▁a")
    assert the is not None and a is not None
    prompt = replace(made.prompt("x", "y", max_tokens=2), token_ids=(1, a))
    made.executor.answers[prompt.token_ids] = [the]
    assert SyncEngine(made.stepper).generate([prompt])[0].text == " the the"


def test_counts_while_text_is_held_back() -> None:
    made = bench()
    pieces = list(SyncEngine(made.stepper).stream([made.prompt("q", "xxSTOPyy", stop=("STOPz",), max_tokens=8)]))
    counts = [piece.num_output_tokens for piece in pieces]
    assert counts == sorted(counts)
    assert counts[-1] == 8 == sum(len(piece.token_ids) for piece in pieces)
    assert "".join(piece.text for piece in pieces).startswith("xxSTOPyy")


def test_cached_prompt_tokens_are_reported() -> None:
    made = bench()
    prompt = made.prompt("a long question " * 6, "abc", max_tokens=2, n=2)
    engine = SyncEngine(made.stepper)
    assert engine.generate([prompt])[0].num_cached_tokens == 0
    again = engine.generate([prompt])[0]
    assert 0 < again.num_cached_tokens < len(prompt.token_ids)
    assert again.num_cached_tokens % 16 == 0
