"""Guesses on the emulated device: drafts, heads and layers run there. The answers are those of the CPU without guesses,
bit for bit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cuda.emulator.fake import controls, same_level
from tests.speculate.heads.test_eagle3 import write as write_eagle3
from tests.speculate.heads.test_mtp import folder_of
from tests.speculate.test_real_engine import AllOfThem
from twostroke import LLM, SamplingParams
from twostroke.runner.device.sampler import DeviceSampler
from twostroke.types.errors import OutOfMemory
from twostroke.types.grammar import Grammar
from twostroke.types.output import Prompt

SMALL = {"context": "128", "max_step_tokens": "48", "max_sequences": "4", "kv_memory": "2MB"}
INT8 = {**SMALL, "weights": "int8", "kv_format": "bf16"}
QUESTIONS = ("what is ttft", "what is a kv cache")
PARAMS = (
    SamplingParams(temperature=0.0, max_tokens=12, logprobs=2, ignore_eos=True),
    SamplingParams(temperature=0.7, seed=5, max_tokens=10, repetition_penalty=1.2, frequency_penalty=0.4, logprobs=0),
    SamplingParams(temperature=0.6, seed=3, max_tokens=10, grammar=Grammar.regex(r"([a-z]{1,6} ){3,9}end")),
    SamplingParams(temperature=1.0, seed=3, max_tokens=10, allowed_token_ids=(300, 301), prompt_logprobs=1),
)


def answers(llm: LLM, way: str) -> list[Any]:
    """The answers to all kinds of requests together. There is no grammar where the model has no end token."""
    encoded = [tuple(llm._built.tokenizer.encode_prompt(text)) for text in QUESTIONS]
    kinds = [params for params in PARAMS if params.grammar is None or llm._built.generation.eos_token_ids]
    asked = [Prompt(encoded[i % 2], params, speculate=way) for i, params in enumerate(kinds)]
    return [
        (each.prompt_logprobs, each.completions[0].token_ids, each.completions[0].logprobs)
        for each in llm.engine.generate(asked)
    ]


def model_of(way: str, folder: Path) -> tuple[str, str]:
    """The model, and the value of `--speculate`."""
    if way == "eagle-3":
        write_eagle3(folder, {}, {})
        return "spark", f"eagle:{folder}"
    if way == "mtp":
        return str(folder_of("glm-4.5", folder)), way
    if way == "mtp, two layers":
        return str(folder_of("deepseek-v3", folder, 2)), "mtp"
    if way == "draft with states":
        name = str(folder_of("qwen3-next", folder))
        return name, f"draft:{name}"
    return "spark", way


@cache
def answers_of_the_cpu(model: str, level: str) -> list[Any]:
    """The answers without guesses; most ways have the same model."""
    with LLM(model, cpu_level=level, **INT8) as plain:
        return answers(plain, "off")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    "way", ["suffix", "draft:spark-draft", "medusa", "eagle", "eagle-3", "mtp", "mtp, two layers", "draft with states"]
)
def test_guesses_change_no_bit_and_bring_no_logits(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[str] = []
    monkeypatch.setattr(DeviceSampler, "_count", lambda _self, reason: brought.append(reason))
    level = same_level()
    if level is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    model, option = model_of(way, tmp_path)
    expected = answers_of_the_cpu(model, level)
    with LLM(model, device="cuda", speculate=option, **INT8) as llm:
        llm._built.guesser._limiter = AllOfThem(llm._built.guesser._limiter.times)
        assert answers(llm, option.partition(":")[0]) == expected
        assert llm._built.guesser.totals.guessed > 0 and llm._built.guesser.totals.accepted > 0
    assert brought == []
    assert controls().fake_used() == 0


@pytest.mark.usefixtures("fake")
def test_a_step_with_guesses_is_one_copy_up_and_one_down() -> None:
    params = SamplingParams(temperature=1.0, seed=2, max_tokens=24, logprobs=1, top_p=0.9, allowed_token_ids=(5, 6))
    with LLM("spark", device="cuda", speculate="suffix", early_steps="off", **SMALL) as llm:
        llm._built.guesser._limiter = AllOfThem(llm._built.guesser._limiter.times)
        before = [getattr(controls(), f"fake_copies_{way}")() for way in ("up", "down")]
        made = llm.generate([[9, 8, 7] * 4], params)
        after = [getattr(controls(), f"fake_copies_{way}")() for way in ("up", "down")]
        accepted = llm._built.guesser.totals.accepted
    assert len(made[0].completions[0].token_ids) == 24 and accepted > 0
    assert [a - b for a, b in zip(after, before, strict=True)] == [24 - accepted] * 2


@pytest.mark.usefixtures("fake")
def test_a_draft_is_planned_in_the_devices_memory() -> None:
    needed = []
    for option in ({}, {"speculate": "draft:spark-draft"}):
        controls().fake_reset(1, 20_000_000, 1)
        with pytest.raises(OutOfMemory, match="does not fit") as caught:
            LLM("spark", device="cuda", **{**SMALL, "kv_memory": "1GB", **option})
        needed.append(str(caught.value))
    assert needed[0] != needed[1]
