"""Filling in the middle: the tokens that a vocabulary has for it, and the order of the prompt."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from twostroke.text.infill import InfillTokens, Middle, OtherFile


class Vocabulary:
    def __init__(self, *names: str, special: Mapping[str, str] | None = None) -> None:
        self.ids = {name: 100 + place for place, name in enumerate(names)}
        self.special_texts: Mapping[str, str] = special or {}

    def id_of(self, token: str) -> int | None:
        return self.ids.get(token)


QWEN = Vocabulary("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
PLAIN = Vocabulary("<fim_prefix>", "<fim_suffix>", "<fim_middle>")


@pytest.mark.parametrize(
    "names",
    [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        ("▁<PRE>", "▁<SUF>", "▁<MID>"),
        ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ],
)
def test_tokens_are_found_by_their_names(names: tuple[str, ...]) -> None:
    found = InfillTokens.find(Vocabulary(*names))
    assert found is not None and (found.pre, found.suf, found.mid) == (100, 101, 102)
    assert found.prompt(Middle([1, 2], [3], [4]), 99).token_ids == [100, 1, 2, 101, 3, 102, 4]
    assert InfillTokens.find(Vocabulary(*names[:2])) is None and InfillTokens.find(Vocabulary()) is None


def test_a_file_names_its_own_tokens() -> None:
    special = {"fim_pre_token": "A", "fim_suf_token": "B", "fim_mid_token": "C"}
    found = InfillTokens.find(Vocabulary("A", "B", "C", "<|fim_prefix|>", special=special))
    assert found is not None and (found.pre, found.suf, found.mid) == (100, 101, 102)


def test_a_vocabulary_that_reads_the_suffix_first() -> None:
    found = InfillTokens.find(Vocabulary("[PREFIX]", "[SUFFIX]", "[MIDDLE]"))
    assert found is not None
    assert found.prompt(Middle([1, 2], [3], [4]), 99).token_ids == [101, 3, 100, 1, 2, 4]


def test_other_files_stand_in_front() -> None:
    others = [OtherFile([7], [1, 1]), OtherFile([8], [2])]
    found = InfillTokens.find(QWEN)
    assert found is not None and found.ends == frozenset(range(100, 105))
    made = found.prompt(Middle([5], [6], (), others, [9]), 99)
    assert made.token_ids == [103, 9, 104, 7, 1, 1, 104, 8, 2, 100, 5, 101, 6, 102] and not made.left_out
    plain = InfillTokens.find(PLAIN)
    assert plain is not None
    assert plain.prompt(Middle([5], [6], (), others, [9]), 99).token_ids == [1, 1, 2, 100, 5, 101, 6, 102]


@pytest.mark.parametrize(("num_prefix", "num_suffix"), [(0, 0), (3, 3), (50, 50), (200, 10), (10, 200), (200, 200)])
def test_what_has_no_room_is_cut_and_named(num_prefix: int, num_suffix: int) -> None:
    found = InfillTokens.find(QWEN)
    assert found is not None
    prefix, suffix = list(range(1000, 1000 + num_prefix)), list(range(2000, 2000 + num_suffix))
    others = [OtherFile([7], [1] * 30), OtherFile([8], [2] * 30)]
    for room in (4, 20, 100, 1000):
        made = found.prompt(Middle(prefix, suffix, (), others, [9]), room)
        assert len(made.token_ids) <= room
        before = [each for each in made.token_ids if 1000 <= each < 2000]
        after = [each for each in made.token_ids if each >= 2000]
        assert before == prefix[num_prefix - len(before) :] and after == suffix[: len(after)]
        cut = len(before) + len(after) < num_prefix + num_suffix
        assert cut == any("prefix" in text for text in made.left_out)
        if cut:
            assert len(before) + len(after) == room - 3 and len(before) >= min(num_prefix, (room - 3) * 3 // 4)
        files = (1 in made.token_ids) + (2 in made.token_ids)
        assert any("other files" in text for text in made.left_out) == (files < 2)
