"""The exactness law on a published model. A request has the same tokens and log probabilities, bit for bit, alone, in a
crowd whose pool is too small, in chunks and with guesses. It also has them on another replica after the death of the
first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.running import Running, serving
from tests.real.questions import QUESTIONS
from tests.tiers import fewer
from twostroke import LLM, SamplingParams
from twostroke.types.grammar import Grammar
from twostroke.types.output import GenerationOutput

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
SHORT = fewer(80, quick=64)
PARAMS = (
    SamplingParams(temperature=0.0, max_tokens=SHORT, logprobs=3, ignore_eos=True),
    SamplingParams(temperature=0.8, top_p=0.9, seed=4, max_tokens=SHORT, logprobs=1, ignore_eos=True),
    SamplingParams(temperature=1.2, seed=5, max_tokens=SHORT, logprobs=0, repetition_penalty=1.2, prompt_logprobs=2),
    SamplingParams(temperature=0.7, seed=6, max_tokens=SHORT, logprobs=0, grammar=Grammar.json_schema(SCHEMA)),
    SamplingParams(temperature=0.0, max_tokens=SHORT, logprobs=1, stop=(" the",)),
    SamplingParams(temperature=0.9, seed=7, max_tokens=SHORT, logprobs=1, n=2, ignore_eos=True),
)
ROOMY = {"context": 512, "kv_format": "bf16", "kv_memory": "128MB", "threads": 2, "speculate": "off"}
FEW_ROWS = {"max_step_tokens": 24, "max_sequences": 7}
NARROW = {"context": 256, "kv_format": "bf16", "kv_memory": "6400KB", "threads": 1, "speculate": "ngram", **FEW_ROWS}
"""There is room for two or three of the seven answers, prompts are read in pieces, and each token is guessed."""


def bits(output: GenerationOutput) -> tuple[Any, ...]:
    """Everything that the law covers."""
    return output.prompt_logprobs, [(each.token_ids, each.logprobs, each.finish_reason) for each in output.completions]


def prompts(llm: LLM) -> list[list[int]]:
    return [llm.chat_tokens(question) for question in QUESTIONS[2 : len(PARAMS) + 2]]


def alone(llm: LLM) -> list[GenerationOutput]:
    return [llm.generate([prompt], params)[0] for prompt, params in zip(prompts(llm), PARAMS, strict=True)]


def test_a_crowd_with_too_little_room_and_guesses_gives_the_bits_of_each_alone(smol_file: Path) -> None:
    with LLM(str(smol_file), **ROOMY) as llm:
        expected = [bits(output) for output in alone(llm)]
    with LLM(str(smol_file), **NARROW) as llm:
        found = llm.generate(prompts(llm), PARAMS)
    assert [bits(output) for output in found] == expected
    assert sum(each.num_preemptions for output in found for each in output.completions) > 0


def many(running: Running, asked: Sequence[dict[str, Any]]) -> list[Any]:
    return [running.answer(fields) for fields in asked]


@pytest.mark.daily
def test_a_stream_goes_on_where_its_replica_is_killed(smol_file: Path) -> None:
    asked: list[dict[str, Any]] = [
        {"temperature": 0, "max_tokens": 80, "logprobs": True, "top_logprobs": 2},
        {"temperature": 0.9, "seed": 3, "max_tokens": 80, "logprobs": True},
    ]
    with serving(2, "--context", "512", model=str(smol_file)) as running:
        expected = many(running, asked)
        killed: list[str] = []

        def piece() -> None:
            nonlocal pieces
            pieces += 1
            if pieces == 20:
                killed.append(running.kill_one_that_computes())

        for fields, whole in zip(asked, expected, strict=True):
            pieces = 0
            assert running.answer(fields, piece) == whole
        assert len(killed) == 2 and all(killed)
