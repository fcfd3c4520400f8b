"""The definition of a right answer."""

import json

import pytest
from tools.spark.corpus import Entry
from tools.spark.score import Case, judge, score, similarity

ANSWERS = {
    "prefill": "Prefill reads the whole prompt in one pass and fills the cache for all of its positions.",
    "prefill-twin": "Prefill reads the whole prompt in one pass and fills the cache for all of its layers.",
    "decode": "Decode makes one token at a time.",
}


def test_equal_up_to_case_and_punctuation_is_right() -> None:
    assert judge(Case("q", "decode"), "decode makes ONE token, at a time", ANSWERS).right


def test_near_enough_and_nearest_is_right() -> None:
    text = ANSWERS["prefill"].replace("Prefill reads", "Prefill always reads")
    assert judge(Case("q", "prefill"), text, ANSWERS).right


def test_near_but_nearer_to_another_is_wrong() -> None:
    verdict = judge(Case("q", "prefill"), ANSWERS["prefill-twin"], ANSWERS)
    assert verdict.similarity >= 0.9
    assert not verdict.right
    assert verdict.nearest_id == "prefill-twin"


def test_another_answer_and_silence_are_wrong() -> None:
    assert judge(Case("q", "prefill"), ANSWERS["decode"], ANSWERS).nearest_id == "decode"
    assert not judge(Case("q", "prefill"), "", ANSWERS).right


def test_score_counts() -> None:
    cases = [Case("one", "decode"), Case("two", "decode")]
    found = score(cases, [ANSWERS["decode"], "nonsense"], ANSWERS)
    assert (found.right, found.share) == (1, 0.5)
    assert [miss["question"] for miss in found.to_dict()["misses"]] == ["two"]
    with pytest.raises(ValueError):
        score(cases, ["only one"], ANSWERS)


def test_similarity_is_over_words() -> None:
    assert similarity("a b c d", "a b c x") == pytest.approx(0.75)


def test_the_saved_score_is_of_this_corpus(entries: list[Entry]) -> None:
    from tools.spark.evaluate import HELD_OUT_JSON, held_out_cases

    saved = json.loads(HELD_OUT_JSON.read_text())
    assert saved["cases"] == len(held_out_cases(entries)) >= 60
    assert saved["right"] + len(saved["misses"]) == saved["cases"]
