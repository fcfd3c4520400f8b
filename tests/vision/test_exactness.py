"""The exactness law with images. The bits are the same alone, among others, in any chunks, from cached pages, after
preemption, and with rows of images that were kept or are computed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.vision.folders import picture, smolvlm, user
from twostroke import LLM
from twostroke.types.output import GenerationOutput, Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

PARAMS = SamplingParams(max_tokens=12, temperature=0.8, seed=3, logprobs=2, ignore_eos=True)
CONVERSATIONS: list[list[Any]] = [
    ["See ", picture(50, 20), " this."],
    ["See ", picture(50, 20), " that, then ", picture(33, 33)],
    [picture(64, 64), "and words that go on for some time"],
    ["No picture at all, but words."],
    [picture(50, 20), "and", picture(50, 20), "twice"],
    ["See ", picture(50, 20, 1), " this."],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("exact")
    smolvlm(made)
    return made


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[LLM]:
    usual = {"context": 512, "max_sequences": 8, "max_step_tokens": 512, "threads": 1, "kv_memory": "20MB"}
    with LLM(str(folder), **{**usual, **options}) as made:
        yield made


def prompt_of(llm: LLM, place: int) -> Prompt:
    rendered = llm._rendered([user(*CONVERSATIONS[place])], False)
    ids = tuple(llm.tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted))
    spans = () if rendered.pictures is None else rendered.pictures.spans(ids)
    return Prompt(ids, PARAMS, images=spans)


def bits(output: GenerationOutput) -> tuple[Any, ...]:
    completion = output.completions[0]
    assert completion.error is None
    return completion.token_ids, completion.logprobs


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[tuple[Any, ...]]:
    """Each conversation on an engine that has computed no other."""
    found = []
    for place in range(len(CONVERSATIONS)):
        with opened(folder) as llm:
            found.append(bits(llm.engine.generate([prompt_of(llm, place)])[0]))
    return found


def test_pictures_count(alone: list[tuple[Any, ...]]) -> None:
    """The first and the last conversation differ only in the picture."""
    assert alone[0] != alone[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 2},
        {"max_step_tokens": 8},
        {"max_step_tokens": 23, "max_sequences": 3, "image_cache": "1"},
        {"max_step_tokens": 64, "image_cache": "2500"},
    ],
    ids=str,
)
def test_the_same_bits_among_others(folder: Path, alone: list[tuple[Any, ...]], options: dict[str, Any]) -> None:
    with opened(folder, **options) as llm:
        prompts = [prompt_of(llm, place) for place in range(len(CONVERSATIONS))]
        assert [bits(output) for output in llm.engine.generate(prompts)] == alone


def test_the_same_bits_from_cached_pages(folder: Path, alone: list[tuple[Any, ...]]) -> None:
    """A beginning is shared as far as text and pictures are the same, and no further."""
    with opened(folder) as llm:
        found = [llm.engine.generate([prompt_of(llm, place)])[0] for place in (0, 0, 1, 5)]
        assert [bits(output) for output in found] == [alone[0], alone[0], alone[1], alone[5]]
        first, again, longer, other = (output.num_cached_tokens for output in found)
        length = len(found[0].prompt_token_ids)
        assert first == 0 and again >= length - 16 and longer > 32 and other < 32


def test_the_same_bits_after_preemption(folder: Path) -> None:
    """The pool is full before the answers are whole. So some requests give their pages back and read their images
    again."""
    places, params = (0, 5, 2, 0, 5), replace(PARAMS, max_tokens=70)
    with opened(folder, context=256) as llm:
        own = {place: replace(prompt_of(llm, place), params=params) for place in set(places)}
        alone = {place: bits(llm.engine.generate([each])[0]) for place, each in own.items()}
    with opened(folder, context=256, kv_memory="170KB", max_step_tokens=40, image_cache="1") as llm:
        salts = enumerate(places)  # without shared pages
        prompts = [replace(prompt_of(llm, place), params=params, cache_salt=str(n)) for n, place in salts]
        outputs = llm.engine.generate(prompts)
        assert [bits(output) for output in outputs] == [alone[place] for place in places]
        assert sum(output.completions[0].num_preemptions for output in outputs) > 0


@pytest.mark.parametrize("weights", ["bf16", "int8", "int4"])
def test_the_same_bits_in_other_formats(folder: Path, weights: str) -> None:
    with opened(folder, weights=weights) as llm:
        one = bits(llm.engine.generate([prompt_of(llm, 1)])[0])
    with opened(folder, weights=weights, max_step_tokens=16, threads=2) as llm:
        many = llm.engine.generate([prompt_of(llm, place) for place in (2, 1, 0)])
        assert bits(many[1]) == one
