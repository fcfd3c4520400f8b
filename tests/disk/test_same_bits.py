"""An answer has the same bits whether its prompt was computed or read from the disk, for caches of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk.folders import folder_of
from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.disk import saving
from twostroke.llm import LLM
from twostroke.types.output import GenerationOutput, Prompt
from twostroke.types.sampling_params import SamplingParams

FAMILIES = ["smollm3", "gemma3", "mamba2", "qwen3-next", "lfm2", "deepseek-v3", "gpt-oss", "recurrent-gemma"]
PARAMS = SamplingParams(temperature=1.0, max_tokens=24, seed=5, logprobs=2)
PROMPT = tuple(7 + (index * index) % 211 for index in range(300))
LATER = (*PROMPT, *(11, 12, 13), *range(20, 60))


@pytest.fixture(autouse=True)
def _always_worth(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiny models compute faster than any disk reads."""
    monkeypatch.setattr(DiskPrice, "worth_reading", lambda *_: True)
    monkeypatch.setattr(saving, "LEAST_TOKENS", 32)
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
