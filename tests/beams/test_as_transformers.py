"""The beams and scores equal those of transformers' generate(num_beams=...), on tiny random checkpoints."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.beams.machine import EverySecond, Found, Loaded, drive, load, machine, members
from tests.tiers import fewer, thinned
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.text.stop_text import stop_text
from twostroke.types.request import FinishReason
from twostroke.types.sampling.sampling_params import SamplingParams

PROMPT = (5, 17, 99, 23, 42, 8, 61, 77, 3, 120, 31, 64, 90, 12, 55, 101, 44, 7, 19)
ENDS = frozenset({11, 29, 50, 83, 140, 160})
GRID = list(itertools.product((2, 4), (True, False, "never"), (-1.0, 0.0, 0.5, 1.0, 2.0), (0, 4)))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load("llama3-grouped", tmp_path_factory.mktemp("llama"))


class Letters:
    """A vocabulary of six letters, which tokens have in turn. Satisfies text.detokenizer.Vocabulary."""

    byte_level = True
    special_ids: frozenset[int] = frozenset()

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join("abcdef"[token_id % 6] for token_id in token_ids)

    def has(self, token_id: int) -> bool:
        return True

    def token_bytes(self, token_id: int) -> bytes:
        return self.decode([token_id]).encode()


@cache
def judge_of(family: str) -> Any:
    """The model of transformers that made the family's checkpoint."""
    from tests.models.families.whole import make_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        return make_checkpoint(family, Path(folder))


def judged(loaded: Loaded, params: SamplingParams, size: int, ends: frozenset[int], **others: Any) -> list[Found]:
    """The result of transformers. others: further arguments of generate."""
    import torch

    with torch.no_grad():
        made = judge_of(loaded.family).generate(
            torch.tensor([PROMPT]),
            attention_mask=torch.ones(1, len(PROMPT), dtype=torch.long),
            num_beams=params.num_answers,
            num_return_sequences=params.n,
            length_penalty=params.length_penalty,
            early_stopping=params.early_stopping,
            max_new_tokens=size,
            min_new_tokens=params.min_tokens or None,
            eos_token_id=sorted(ends) or None,
            pad_token_id=0,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **others,
        )
    answers = []
    for row, score in zip(made.sequences[:, len(PROMPT) :].tolist(), made.sequences_scores.tolist(), strict=True):
        end = next((i + 1 for i, token_id in enumerate(row) if token_id in ends), len(row))
        answers.append(Found(row[:end], score=score))
    return answers


def compare(loaded: Loaded, params: SamplingParams, size: int, ends: frozenset[int]) -> list[Found]:
    """Raises AssertionError where our answers differ from the others. Returns ours."""
    with machine(loaded, 40, SchedulerLimits(64, 8)) as (core, cache):
        found = list(drive(core, cache, [(0, members("b", PROMPT, params, size, ends))]).values())
    for ours, theirs in zip(found, judged(loaded, params, size, ends), strict=False):
        assert ours.tokens == theirs.tokens
        assert ours.score == pytest.approx(theirs.score, abs=2e-5, rel=2e-5)
        ended = ours.tokens[-1] in ends
        assert ours.reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
        total = sum(each.logprob for each in ours.logprobs)
        assert ours.score == pytest.approx(total / len(ours.tokens) ** params.length_penalty)
    return found


@pytest.mark.parametrize(("width", "early", "penalty", "least"), thinned(GRID, "beams", fewer(8, quick=2)), ids=str)
def test_beams_and_scores_are_those_of_transformers(
    width: int, early: bool | str, penalty: float, least: int, llama: Loaded
) -> None:
    params = SamplingParams(
        n=width,
        use_beam_search=True,
        length_penalty=penalty,
        early_stopping=early,
        min_tokens=least,
        logprobs=0,
    )
    compare(llama, params, 14, ENDS)


def allowed_after(taken: list[int]) -> list[int]:
    """The tokens that EverySecond allows, of the 199 tokens of this vocabulary."""
    mask = EverySecond()
    mask.taken = taken
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask.bits(), np.uint8), bitorder="little")[:199]).tolist()


def test_penalties_bans_and_masks_change_scores_as_in_transformers(llama: Loaded) -> None:
    """In transformers they change log probabilities and not logits. A token's log probabilities are the model's in
    both."""
    params = SamplingParams(
        n=4,
        use_beam_search=True,
        early_stopping="never",
        min_tokens=3,
        logprobs=0,
        repetition_penalty=1.3,
        bad_token_ids=((44,), (60, 61)),
    )
    others = {
        "repetition_penalty": 1.3,
        "bad_words_ids": [[44], [60, 61]],
        "prefix_allowed_tokens_fn": lambda _, ids: allowed_after(ids[len(PROMPT) :].tolist()),
    }
    group = [replace(each, mask=EverySecond()) for each in members("b", PROMPT, params, 14, ENDS)]
    with machine(llama, 40, SchedulerLimits(64, 8)) as (core, cache):
        found = list(drive(core, cache, [(0, group)]).values())
    for ours, theirs in zip(found, judged(llama, params, 14, ENDS, **others), strict=True):
        assert ours.tokens == theirs.tokens and ours.score == pytest.approx(theirs.score, abs=2e-5, rel=2e-5)
        assert ours.score < sum(each.logprob for each in ours.logprobs) / len(ours.tokens)


@pytest.mark.parametrize(("width", "early", "ends"), [(2, False, ENDS), (4, "never", frozenset()), (4, True, ENDS)])
def test_stop_strings_end_beams_as_in_transformers(
    width: int, early: bool | str, ends: frozenset[int], llama: Loaded
) -> None:
    """transformers gets a criterion of ours, because its StopStringCriteria also reads the prompt's text."""
    params = SamplingParams(n=width, use_beam_search=True, early_stopping=early, stop=("ab", "ed", "f"))

    import torch
    from transformers import StoppingCriteriaList

    def stopped(ids: torch.Tensor, scores: object) -> torch.Tensor:
        texts = [Letters().decode(row[len(PROMPT) :]) for row in ids.tolist()]
        return torch.tensor([any(stop in text for stop in params.stop) for text in texts])

    with machine(llama, 40, SchedulerLimits(64, 8), text_of=partial(stop_text, Letters())) as (core, cache):
        found = list(drive(core, cache, [(0, members("b", PROMPT, params, 14, ends))]).values())
    theirs = judged(llama, params, 14, ends, stopping_criteria=StoppingCriteriaList([stopped]))
    by_stop_string = 0
    for ours, other in zip(found, theirs, strict=True):
        assert ours.score == pytest.approx(other.score, abs=2e-5, rel=2e-5)
        assert ours.tokens == other.tokens[: len(ours.tokens)]  # transformers pads an answer after its end
        by_stop_string += any(stop in Letters().decode(ours.tokens) for stop in params.stop)
    assert by_stop_string > 0


def test_searches_end_in_all_ways(llama: Loaded) -> None:
    """This keeps the comparison above from passing because no search meets an end token, or the last token."""
    params = SamplingParams(n=4, use_beam_search=True, logprobs=0)
    ends = frozenset(range(0, 190, 6))
    reasons = {each.reason for each in compare(llama, params, 14, ends)}
    lengths = {len(each.tokens) for each in compare(llama, params, 14, ends)}
    assert FinishReason.STOP in reasons and len(lengths) > 1 and max(lengths) < 14
    assert {each.reason for each in compare(llama, params, 5, frozenset())} == {FinishReason.LENGTH}


COPIED = ["mistral-window", "mamba2", "qwen3-next", "deepseek-v2-lite"]


@pytest.mark.parametrize("family", thinned(COPIED, "copied beams", fewer(4, quick=1)))
def test_windows_and_states_are_copied_with_their_beam(family: str, tmp_path: Path) -> None:
    params = SamplingParams(n=3, best_of=4, use_beam_search=True, logprobs=0)
    compare(load(family, tmp_path), params, 24, frozenset({11}))
