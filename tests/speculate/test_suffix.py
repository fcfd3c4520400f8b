"""suffix, compared with a suffix tree with counts that is built in the slow way."""

import random

import pytest

from tests.speculate.texts import request
from twostroke.engine.speculate.finished import FinishedAnswers
from twostroke.engine.speculate.occurrences import SHORTEST
from twostroke.engine.speculate.proposer import NO_GUESS, Guess, GuessWanted
from twostroke.engine.speculate.suffix import SuffixProposer, expected_tokens

END = -1


class Node:
    """A node of a suffix tree with every run of a text: how often it occurs, where it occurs last, and the token after
    it."""

    def __init__(self) -> None:
        self.count, self.last = 0, -1
        self.children: dict[int, Node] = {}


def tree_of(known: list[int]) -> Node:
    """The tree of all runs that have a token after them. The end of the text itself is no occurrence."""
    root = Node()
    for start in range(len(known)):
        node = root
        for at in range(start, len(known) + 1):
            token_id = known[at] if at < len(known) else END
            node = node.children.setdefault(token_id, Node())
            node.count, node.last = node.count + 1, start
    return root


def tree_guess(known: list[int], most: int, least_chance: float) -> Guess:
    """Arctic's rule over that tree: for every suffix its likeliest path, and of all paths the one with the largest
    sum."""
    best, score = NO_GUESS, 0.0
    root = tree_of(known)
    for matched in range(min(24, len(known) - 1), SHORTEST - 1, -1):
        node: Node | None = root
        for token_id in known[-matched:]:
            node = node.children.get(token_id) if node is not None else None
        if node is None:
            continue
        path: list[int] = []
        chances: list[float] = []
        chance, first = 1.0, True
        while len(path) < min(most, matched):
            children = {token_id: child for token_id, child in node.children.items() if not first or token_id != END}
            first = False
            total = sum(child.count for child in children.values())
            if not total:
                break
            token_id, child = max(children.items(), key=lambda each: (each[1].count, each[1].last))
            chance *= child.count / total
            if token_id == END or chance < least_chance:
                break
            path.append(token_id)
            chances.append(child.count / total)
            node = child
        if expected_tokens(chances) > score:
            best, score = Guess(path, matched, chances), expected_tokens(chances)
    return best


@pytest.mark.parametrize("alphabet", [3, 4, 8])
def test_guesses_are_those_of_a_suffix_tree(alphabet: int) -> None:
    rng = random.Random(alphabet)
    found = 0
    for _ in range(120):
        known = [rng.randrange(alphabet) for _ in range(rng.randrange(5, 40))]
        expected = tree_guess(known, 5, 0.2)
        if expected.matched < 8:  # beyond this length, shorter runs are not tried
            guess = SuffixProposer(FinishedAnswers(0), least_chance=0.2).propose([GuessWanted(request(), known, 5)])[0]
            assert guess == expected
            found += expected != NO_GUESS
    assert found > 20


def test_a_guess_is_no_longer_than_what_agrees() -> None:
    proposer = SuffixProposer(FinishedAnswers(0))
    assert proposer.propose([GuessWanted(request(), [1, 2, 3, 4, 5, 6, 1, 2], 8)]) == [Guess([3, 4], 2, [1.0, 1.0])]
    longer = SuffixProposer(FinishedAnswers(0), factor=2.0)
    assert longer.propose([GuessWanted(request(), [1, 2, 3, 4, 5, 6, 1, 2], 8)])[0].token_ids == [3, 4, 5, 6]


def test_the_most_frequent_path_is_taken_and_cut_where_it_is_unlikely() -> None:
    known = [1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2]
    guess = SuffixProposer(FinishedAnswers(0), least_chance=0.3).propose([GuessWanted(request(), known, 8)])[0]
    assert guess == Guess([3, 8], 2, [2 / 3, 0.5])
    guess = SuffixProposer(FinishedAnswers(0), least_chance=0.4).propose([GuessWanted(request(), known, 8)])[0]
    assert guess == Guess([3], 2, [2 / 3])


def test_answers_of_the_same_salt_are_seen_and_no_others() -> None:
    proposer = SuffixProposer(FinishedAnswers())
    proposer.ended(request("a", prompt=[50, 51, 52], salt="x"), [50, 51, 52, 1, 2, 3, 4])
    assert proposer.propose([GuessWanted(request("b", salt="x"), [9, 1, 2], 2)])[0].token_ids == [3, 4]
    assert proposer.propose([GuessWanted(request("c", salt="x"), [50, 51], 2)]) == [
        NO_GUESS
    ]  # a prompt is not an answer
    assert proposer.propose([GuessWanted(request("d", salt="y"), [9, 1, 2], 2)]) == [NO_GUESS]
    assert proposer.propose([GuessWanted(request("e"), [9, 1, 2], 2)]) == [NO_GUESS]


def test_nothing_is_guessed_behind_the_end_of_an_answer() -> None:
    proposer = SuffixProposer(FinishedAnswers())
    for name in "ab":
        proposer.ended(request(name), [1, 2, 3])
    assert proposer.propose([GuessWanted(request("c"), [9, 1, 2, 3], 4)]) == [NO_GUESS]
    assert proposer.propose([GuessWanted(request("c"), [9, 1, 2], 4)])[0].token_ids == [3]


def test_finished_answers_are_bounded_whatever_comes() -> None:
    rng = random.Random(1)
    finished = FinishedAnswers(1000)
    for _ in range(2000):
        finished.add(rng.choice("abcdefgh"), [rng.randrange(50) for _ in range(rng.choice([0, 3, 40, 700]))])
        assert finished.num_tokens <= 1000
        kept = sum(len(tokens) for salt in "abcdefgh" for tokens, _ in finished.texts(salt))
        assert kept == finished.num_tokens


def test_the_latest_answer_is_always_kept() -> None:
    finished = FinishedAnswers(1000)
    for number in range(100):
        answer = [number, number + 1, number + 2] * 30
        finished.add("salt", answer)
        assert any(answer == list(tokens[-91:-1]) for tokens, _ in finished.texts("salt"))


def test_expected_tokens() -> None:
    assert expected_tokens([]) == 0
    assert expected_tokens([0.5, 0.5]) == 0.75
