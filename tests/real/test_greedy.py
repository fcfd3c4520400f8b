"""Greedy answers of SmolLM2 in float32 are, token by token, those that transformers would give.

The judge reads each question with our answer: a token is its own where no other has a larger logit. Where two logits
lie nearer than TIE, a share of the range of logits, either of both is right, because errors of rounding may swap them.
What comes after such a place is judged as the continuation of the answer that was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.models.parity import TIE
from tests.real.judge import judge_of_file
from tests.real.questions import QUESTIONS
from tests.tiers import TIER
from twostroke import LLM, SamplingParams
from twostroke.types.request import FinishReason

TOKENS = 100
ASKED = QUESTIONS if TIER.daily else QUESTIONS[::10]
"""A tenth of the questions takes ten seconds; daily runs ask all."""
END_ID = 2
"""<|im_end|>, which ends an answer and is no part of it."""
EXACT = {"weights": "f32", "kv_format": "f32", "context": 512}


def wrong_tokens(rows: np.ndarray, tokens: Sequence[int]) -> list[int]:
    """The places whose token is not the judge's. rows: (tokens, V) logits that the tokens are chosen by."""
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
    judge = judge_of_file(smol_file, tmp_path)
    ended = 0
    for question, prompt, answer in zip(ASKED, prompts, answers, strict=True):
        (completion,) = answer.completions
        tokens = list(completion.token_ids)
        if completion.finish_reason is FinishReason.STOP:
            tokens.append(END_ID)
            ended += 1
        else:
            assert len(tokens) == TOKENS
        with torch.no_grad():
            found = judge(torch.tensor([[*prompt, *tokens]]), logits_to_keep=len(tokens) + 1).logits[0, :-1].numpy()
        assert wrong_tokens(found, tokens) == [], question
    assert 0 < ended < len(ASKED), "some answers end by themselves, some do not"
    assert "Paris" in answers[0].text
