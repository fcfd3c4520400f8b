"""Greedy answers of SmolLM2 in float32 are, token by token, those that transformers would give.

The judge reads each question with our answer. A token is right if no other token has a larger logit. Where two logits
lie nearer than TIE, a share of the range of logits, either token is right, because rounding errors may swap them. The
tokens after such a place are judged as the continuation of the given answer. The judge's result for an answer is stored
(tests/judged.py); it reads a new answer again.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import judged
from tests.models.parity import TIE
from tests.real.packages import SMOL
from tests.real.questions import QUESTIONS
from tests.tiers import TIER
from twostroke import LLM, SamplingParams
from twostroke.types.request import FinishReason

TOKENS = 100
ASKED = QUESTIONS if TIER.daily else QUESTIONS[::10]
"""A tenth of the questions takes ten seconds; daily runs ask all."""
END_ID = 2
"""The id of <|im_end|>, which ends an answer and is no part of it."""
JUDGE = Path(__file__).with_name("judge.py")
EXACT = {"weights": "f32", "kv_format": "f32", "context": 512}


def wrong_tokens(rows: np.ndarray, tokens: Sequence[int]) -> list[int]:
    """The places whose token is not the judge's. rows: the logits (tokens, V) by which the tokens are chosen."""
    chosen = rows[np.arange(len(tokens)), list(tokens)]
    allowed = TIE * (rows.max(axis=1) - rows.min(axis=1))
    return np.flatnonzero(rows.max(axis=1) - chosen > allowed).tolist()


def test_a_token_is_wrong_where_another_has_a_clearly_larger_logit() -> None:
    rows = np.array([[0.0, 1.0, 0.5], [0.0, 1.0, 1.0 - 1e-6], [1.0, 0.0, 0.99]], np.float32)
    assert wrong_tokens(rows, [1, 2, 0]) == [] and wrong_tokens(rows, [2, 1, 2]) == [0, 2]


@pytest.mark.slow
def test_answers_are_the_judges(smol_file: Path, tmp_path: Path) -> None:
    assert len(set(QUESTIONS)) == 50
    with LLM(str(smol_file), **EXACT) as llm:
        prompts = [llm.chat_tokens(question) for question in ASKED]
        answers = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=TOKENS))

    @cache
    def judge() -> Any:
        from tests.real.judge import judge_of_file

        return judge_of_file(smol_file, tmp_path)

    def wrong(prompt: Sequence[int], tokens: Sequence[int]) -> list[int]:
        from tests.real.judge import rows_after

        return wrong_tokens(rows_after(judge(), prompt, tokens), tokens)

    ended, rule = 0, (SMOL.checked, JUDGE, TIE, inspect.getsource(wrong_tokens))
    for question, prompt, answer in zip(ASKED, prompts, answers, strict=True):
        (completion,) = answer.completions
        tokens = list(completion.token_ids)
        if completion.finish_reason is FinishReason.STOP:
            tokens.append(END_ID)
            ended += 1
        else:
            assert len(tokens) == TOKENS
        facts = (*rule, list(prompt), tokens)
        assert judged.said(f"greedy: {question}", facts, partial(wrong, prompt, tokens)) == [], question
    assert 0 < ended < len(ASKED), "some answers end by themselves, some do not"
    assert "Paris" in answers[0].text
