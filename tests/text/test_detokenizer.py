"""Streamed text is the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke.text.detokenizer import detokenizer_for, showing
from twostroke.text.tokenizer import Tokenizer

from .kinds import MAKERS, make

BROKEN = "\N{REPLACEMENT CHARACTER}"


def stream(tokenizer: Tokenizer, ids: list[int], context: list[int] | None = None) -> list[str]:
    machine = detokenizer_for(tokenizer, context or [])
    pieces = [machine.feed(token_id) for token_id in ids]
    return [*pieces, machine.finish()]


def id_lists(kind: str) -> st.SearchStrategy[list[int]]:
    # A few ids beyond the vocabulary, because models often have more rows than their tokenizer has tokens.
    return st.lists(st.integers(0, make(kind).vocab_size + 2), max_size=30)


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "byte_fallback"])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_random_tokens(kind: str, data: st.DataObject) -> None:
    ids = data.draw(id_lists(kind))
    assert "".join(stream(make(kind), ids)) == make(kind).decode(ids)


def byte_runs() -> st.SearchStrategy[list[int]]:
    """Ordinary tokens, and characters spelled in byte tokens."""
    tokenizer = make("byte_fallback")
    ordinary = st.integers(260, tokenizer.vocab_size + 1).map(lambda i: [i])
    special = st.integers(0, 3).map(lambda i: [i])
    spelled = st.characters(exclude_categories=["Cs"]).map(lambda c: [4 + b for b in c.encode()])
    return st.lists(ordinary | special | spelled, max_size=20).map(lambda runs: sum(runs, []))


@settings(max_examples=examples(200))
@given(ids=byte_runs())
def test_byte_fallback_with_valid_bytes(ids: list[int]) -> None:
    tokenizer = make("byte_fallback")
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@settings(max_examples=examples(200))
@given(ids=id_lists("byte_fallback"))
def test_byte_fallback_with_any_bytes_loses_no_ordinary_token(ids: list[int]) -> None:
    tokenizer = make("byte_fallback")
    text = "".join(stream(tokenizer, ids))
    for word in ("ing", "🙂", "x▁y"):
        assert text.count(word.replace("▁", " ")) >= ids.count(tokenizer.id_of(word) or 0)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_no_broken_character_mid_stream(kind: str, text: str) -> None:
    text = text.replace(BROKEN, "")
    tokenizer = make(kind)
    pieces = stream(tokenizer, tokenizer.encode_rendered(text))
    assert BROKEN not in "".join(pieces)
    assert "".join(pieces) == tokenizer.decode(tokenizer.encode_rendered(text))


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_half_a_character_comes_out_at_the_end(kind: str) -> None:
    tokenizer = make(kind)
    first = next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"\xe4")
    machine = detokenizer_for(tokenizer)
    assert machine.feed(first) == ""
    assert machine.holding
    assert machine.finish() == BROKEN
    assert not machine.holding


def test_invalid_bytes_are_not_held_for_ever() -> None:
    tokenizer = make("byte_fallback")
    pieces = stream(tokenizer, [4 + 0xFF] * 40)
    assert max(map(len, pieces)) == 1
    assert "".join(pieces) == BROKEN * 40


def test_valid_text_before_an_invalid_byte_stays() -> None:
    tokenizer = make("byte_fallback")
    ids = [4 + b for b in "你".encode()] + [4 + 0xFF] + [tokenizer.id_of("▁the") or 0]
    assert "".join(stream(tokenizer, ids)) == "你" + BROKEN + " the"


@pytest.mark.parametrize("kind", ["byte_fallback", "metaspace"])
@given(data=st.data())
def test_the_context_keeps_the_space_in_front(kind: str, data: st.DataObject) -> None:
    tokenizer = make(kind)
    words = [tokenizer.id_of(word) for word in ("▁a", "▁the", "ing", ".", "▁")]
    ids = data.draw(st.lists(st.sampled_from(words), min_size=2, max_size=20))
    cut = data.draw(st.integers(1, len(ids) - 1))
    pieces = stream(tokenizer, ids[cut:], context=ids[:cut])
    assert tokenizer.decode(ids[:cut]) + "".join(pieces) == tokenizer.decode(ids)


def test_cost_per_token_does_not_grow() -> None:
    tokenizer = make("byte_fallback")
    seen: list[int] = []

    class Counting:
        byte_level = False
        special_ids = tokenizer.special_ids
        has = staticmethod(tokenizer.has)
        token_bytes = staticmethod(tokenizer.token_bytes)

        @staticmethod
        def decode(ids: list[int]) -> str:
            seen.append(len(ids))
            return tokenizer.decode(ids)

    machine = detokenizer_for(Counting())
    for _ in range(500):
        machine.feed(tokenizer.id_of("▁the") or 0)
    assert max(seen) <= 8


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "byte_fallback"])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_special_tokens_that_are_shown_are_text_and_the_others_are_not(kind: str, data: st.DataObject) -> None:
    """Shown tokens cut the text into runs. Each run is the same as alone, except for a space that its first token
    loses."""
    tokenizer = make(kind)
    special = sorted(tokenizer.special_ids)
    if not special:
        return
    shown, hidden = special[0], special[1:]
    ordinary = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1).filter(lambda i: i not in special)))
    text = tokenizer.token_text(shown)
    view = showing(tokenizer, frozenset({shown}))
    ids = [*hidden, *ordinary, shown, *ordinary, *hidden]
    machine = detokenizer_for(view, [])
    made = "".join([*map(machine.feed, ids), machine.finish()])
    before, found, after = made.partition(text)
    assert found == text
    assert before.strip() == tokenizer.decode(ordinary).strip()
    assert after.replace(" ", "") == tokenizer.decode(ordinary).replace(" ", "")
    assert showing(tokenizer, frozenset()) is tokenizer
