"""ngram: what it copies, and from where."""

import random

from tests.speculate.texts import request
from twostroke.engine.speculate.ngram import NgramProposer
from twostroke.engine.speculate.proposer import NO_GUESS, Guess, GuessWanted


def guess(known: list[int], most: int = 4, least: int = 2) -> Guess:
    return NgramProposer(least).propose([GuessWanted(request(), known, most)])[0]


def test_what_followed_follows_again() -> None:
    assert guess([1, 2, 3, 4, 5, 6, 9, 1, 2]) == Guess([3, 4, 5, 6], 2)


def test_nothing_is_guessed_where_nothing_was_seen() -> None:
    assert guess([]) == guess([1]) == guess([1, 2, 3]) == NO_GUESS


def test_the_longest_agreement_wins_then_the_latest() -> None:
    assert guess([7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2], 1) == Guess([30], 3)
    assert guess([7, 1, 2, 30, 8, 1, 2, 40, 9, 1, 2], 1) == Guess([40], 2)


def test_a_loop_is_continued_beyond_the_end() -> None:
    assert guess([5, 1, 2, 1, 2], 6) == Guess([1, 2, 1, 2, 1, 2], 2)
    assert guess([3, 3, 3], 3) == Guess([3, 3, 3], 2)


def test_least() -> None:
    assert guess([1, 2, 3, 9, 1, 2], least=3) == NO_GUESS
    assert guess([1, 2, 3, 9, 1, 2, 3], least=3) == Guess([9, 1, 2, 3], 3)


def test_a_text_that_grows_gives_what_the_whole_text_gives() -> None:
    rng = random.Random(3)
    text = [rng.randrange(4) for _ in range(200)]
    proposer, known = NgramProposer(), list[int]()
    for token_id in text:
        known.append(token_id)
        if rng.random() < 0.5:  # it is asked only now and then, and catches up
            assert proposer.propose([GuessWanted(request(), known, 3)]) == [guess(known, 3)]


def test_requests_do_not_see_each_other_and_leave_nothing() -> None:
    proposer = NgramProposer()
    first, other = request("a"), request("b")
    both = proposer.propose([GuessWanted(first, [1, 2, 3, 1, 2], 1), GuessWanted(other, [4, 1, 2], 1)])
    assert both == [Guess([3], 2), NO_GUESS]
    proposer.ended(first, [])
    assert proposer.propose([GuessWanted(first, [4, 1, 2], 1)]) == [NO_GUESS]
