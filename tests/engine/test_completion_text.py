"""What a reader sees of one completion: text and its tokens, and never a part of a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.engine.answers.completion_text import CompletionText, Piece
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.result import TokenLogprob
from twostroke.types.sampling.sampling_params import SamplingParams

from ..text.kinds import make


def spell(tokenizer: Tokenizer, text: str) -> list[int]:
    """One token for each byte, so that every boundary is known."""
    by_bytes = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids}
    return [by_bytes[bytes([byte])] for byte in text.encode()]


def run(ids: list[int], params: SamplingParams) -> tuple[list[Piece], CompletionText]:
    completion = CompletionText(make("byte_level"), params)
    pieces = []
    for token_id in ids:
        pieces.append(completion.feed(token_id, TokenLogprob(token_id, -1.0)))
        if completion.stop is not None:
            return pieces, completion
    return [*pieces, completion.finish()], completion


def joined(pieces: list[Piece]) -> tuple[str, list[int]]:
    return "".join(p.text for p in pieces), [i for p in pieces for i in p.token_ids]


@given(data=st.data(), stops=st.lists(st.text("abé", min_size=1, max_size=4), max_size=3))
def test_tokens_and_text_agree(data: st.DataObject, stops: list[str]) -> None:
    tokenizer = make("byte_level")
    characters = [[0], [2], *(spell(tokenizer, character) for character in "abé🙂")]
    ids = sum(data.draw(st.lists(st.sampled_from(characters), max_size=20)), [])
    pieces, completion = run(ids, SamplingParams(stop=tuple(stops)))
    text, shown = joined(pieces)
    assert ids[: len(shown)] == shown
    assert [logprob.token_id for p in pieces for logprob in p.logprobs] == shown
    whole = tokenizer.decode(ids)
    if completion.stop is None:
        assert (text, shown, completion.num_tokens) == (whole, ids, len(ids))
        assert not any(stop in whole for stop in stops)
    else:
        assert whole.startswith(text + completion.stop)
        assert tokenizer.decode(shown) == text
    reached = ""
    for piece in pieces[:-1]:
        reached += piece.text
        assert not any(stop in reached for stop in stops)


def test_held_tokens_come_with_the_text_that_frees_them() -> None:
    ids = spell(make("byte_level"), "xSTaSTOPb")
    pieces, completion = run(ids, SamplingParams(stop=("STOP",)))
    assert [(p.text, len(p.token_ids)) for p in pieces] == [
        *(("x", 1), ("", 0), ("", 0), ("STa", 3), ("", 0), ("", 0), ("", 0), ("", 0))
    ]
    assert completion.stop == "STOP"
    assert completion.num_tokens == 8
    assert completion.feed(ids[-1], None) == Piece()
    assert completion.finish() == Piece()


def test_a_character_and_its_tokens_come_together() -> None:
    pieces, _ = run(spell(make("byte_level"), "é🙂"), SamplingParams())
    assert [(p.text, len(p.token_ids)) for p in pieces] == [
        *(("", 0), ("é", 2), ("", 0), ("", 0), ("", 0), ("🙂", 4), ("", 0))
    ]


def test_special_tokens_are_shown_at_once_as_tokens() -> None:
    pieces, _ = run([2, 2, *spell(make("byte_level"), "a")], SamplingParams(ignore_eos=True))
    assert [(p.text, len(p.token_ids)) for p in pieces] == [("", 1), ("", 1), ("a", 1), ("", 0)]


@pytest.mark.parametrize(("min_tokens", "text"), [(0, ""), (2, ""), (3, "ab"), (4, "ab"), (5, "abab"), (7, "ababab")])
def test_stop_strings_wait_for_min_tokens(min_tokens: int, text: str) -> None:
    pieces, completion = run(spell(make("byte_level"), "abababab"), SamplingParams(stop=("ab",), min_tokens=min_tokens))
    assert joined(pieces)[0] == text
    assert completion.num_tokens >= min_tokens


def test_a_token_that_is_half_stop_is_shown() -> None:
    tokenizer = make("byte_level")
    token = next(i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) >= 3 and i > 3)
    word = tokenizer.token_text(token)
    pieces, completion = run([token], SamplingParams(stop=(word[1:],)))
    assert (joined(pieces), completion.stop) == ((word[0], [token]), word[1:])
