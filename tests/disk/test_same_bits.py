"""An answer has the same bits whether its prompt was computed or read from the disk, for caches of every kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.disk.folders import folder_of
from tests.patience import PATIENCE_S
from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.disk import fetching, saving
from twostroke.llm import LLM
from twostroke.types.output import GenerationOutput, Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

FAMILIES = ["smollm3", "gemma3", "mamba2", "qwen3-next", "lfm2", "deepseek-v3", "gpt-oss", "recurrent-gemma"]
PARAMS = SamplingParams(temperature=1.0, max_tokens=24, seed=5, logprobs=2)
PROMPT = tuple(7 + (index * index) % 211 for index in range(300))
LATER = (*PROMPT, *(11, 12, 13), *range(20, 60))


@pytest.fixture(autouse=True)
def _always_worth(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes reading pay, because tiny models compute faster than any disk reads, and lets the engine wait for a busy
    disk."""
    monkeypatch.setattr(DiskPrice, "worth_reading", lambda *_: True)
    monkeypatch.setattr(saving, "LEAST_TOKENS", 32)
    monkeypatch.setattr(fetching, "PATIENCE_S", PATIENCE_S)
    yield


def options(cache: Path, **changes: object) -> dict[str, object]:
    usual = {"weights": "int8", "kv_format": "int8", "threads": 1, "context": 512, "max_sequences": 4}
    return {**usual, "cache": str(cache), "kv_disk": "100MB", **changes}


def bits(output: GenerationOutput) -> object:
    (found,) = output.completions
    return found.token_ids, found.logprobs


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_start_goes_on_with_the_same_bits(family: str, tmp_path: Path) -> None:
    folder = folder_of(family, tmp_path / "model")
    with LLM(str(folder), **options(tmp_path / "cache")) as first:
        (begun,) = first.engine.generate([Prompt(PROMPT, PARAMS)])
    with LLM(str(folder), **options(tmp_path / "cache")) as second:
        (read,) = second.engine.generate([Prompt(LATER, PARAMS)])
        assert second._built.disk is not None and second._built.disk.counts.damaged == 0
        second._built.cache.check()
        assert second._built.cache.pages_used == 0
    with LLM(str(folder), **options(tmp_path / "cache", kv_disk="off")) as third:
        (computed,) = third.engine.generate([Prompt(LATER, PARAMS)])
        assert third._built.disk is None
    assert bits(read) == bits(computed)
    assert read.num_cached_tokens > 0.7 * len(PROMPT), read.num_cached_tokens
    assert computed.num_cached_tokens == 0 and begun.num_cached_tokens == 0


STATES = {"mamba2", "qwen3-next", "lfm2", "recurrent-gemma"}
PAGE = 16


def restarted(folder: Path, cache: Path, prompts: Sequence[tuple[int, ...]]) -> list[GenerationOutput]:
    """The answers of a process of their own."""
    with LLM(str(folder), **options(cache)) as made:
        found = made.engine.generate([Prompt(prompt, PARAMS) for prompt in prompts])
        assert made._built.disk is not None and made._built.disk.counts.damaged == made._built.disk.counts.lost == 0
        made._built.cache.check()
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_is_found_again_whatever_its_length(family: str, tmp_path: Path) -> None:
    """A prompt of whole pages computes its last token again, but a state cannot go back by one token."""
    folder = folder_of(family, tmp_path / "model")
    prompts = [(3 + extra, *PROMPT[: 15 * PAGE + extra - 1]) for extra in (-1, 0, 1)]
    restarted(folder, tmp_path / "cache", prompts)
    again = restarted(folder, tmp_path / "cache", prompts)
    whole = 14 * PAGE if family in STATES else 15 * PAGE - 1
    assert [each.num_cached_tokens for each in again] == [14 * PAGE, whole, 15 * PAGE]


@pytest.mark.parametrize("family", ["smollm3", "gemma3", "gemma4", "gpt-oss", "qwen3-next"])
def test_every_turn_of_a_conversation_finds_all_of_the_last_one(family: str, tmp_path: Path) -> None:
    folder = folder_of(family, tmp_path / "model")
    tokens, known = PROMPT[:100], 0
    for turn in range(4):
        (made,) = restarted(folder, tmp_path / "cache", [tokens])
        found = made.num_cached_tokens
        # The state at an answer's end is kept where a page ended there.
        assert known - (PAGE if family in STATES else 0) <= found <= known, (turn, len(tokens), found)
        answer = made.completions[0].token_ids
        known = (len(tokens) + len(answer) - 1) // PAGE * PAGE
        last, tokens = tokens, (*tokens, *answer, *(50 + turn + each for each in range(37)))
    with LLM(str(folder), **options(tmp_path / "cache", kv_disk="off")) as computed:
        assert bits(computed.engine.generate([Prompt(last, PARAMS)])[0]) == bits(made)


@pytest.mark.parametrize("family", ["gemma3", "gpt-oss"])
def test_a_turn_may_depart_before_the_end_of_the_last_prompt(family: str, tmp_path: Path) -> None:
    """Templates leave an empty thought at the end of a prompt out of the history."""
    folder = folder_of(family, tmp_path / "model")
    restarted(folder, tmp_path / "cache", [PROMPT])
    for cut in (3, 20, 45):
        (made,) = restarted(folder, tmp_path / "cache", [(*PROMPT[:-cut], *range(60, 90))])
        assert made.num_cached_tokens == (len(PROMPT) - cut) // PAGE * PAGE, cut
