"""Texts at which a repetition stops, as the ids of the tokens that contain them."""

from __future__ import annotations

from twostroke.text.dry_breakers import breaker_ids, with_breakers
from twostroke.types.sampling.sampling_params import SamplingParams


class Words:
    """A vocabulary of six tokens."""

    vocab_size = 6
    pieces = (b"a", b"\n", b".\n", b"\xc3", b"x:", b"b")
    asked = 0

    def rows_bytes(self, num_rows: int) -> list[bytes]:
        self.asked += 1
        return list(self.pieces[:num_rows])

    def encode_rendered(self, text: str) -> list[int]:
        return [0, 5]


def test_every_token_that_contains_a_breaker_is_one() -> None:
    assert breaker_ids(["\n", ":"], Words()) == {1, 2, 4}
    assert breaker_ids(["é"], Words()) == {5}  # no token contains it, so the last one of its own is taken


def test_breakers_are_found_once_and_only_where_they_count() -> None:
    words = Words()
    assert with_breakers(SamplingParams(), words).dry_breaker_ids == frozenset() and words.asked == 0
    on = SamplingParams(dry_multiplier=0.8)
    assert with_breakers(on, words).dry_breaker_ids == {1, 2, 4, 5}  # no token contains the others
    assert with_breakers(on, words).dry_breaker_ids == {1, 2, 4, 5} and words.asked == 1
    own = SamplingParams(dry_multiplier=0.8, dry_breaker_ids=[3])
    assert with_breakers(own, words).dry_breaker_ids == {3}
    none = SamplingParams(dry_multiplier=0.8, dry_sequence_breakers=[])
    assert with_breakers(none, words).dry_breaker_ids == frozenset()
