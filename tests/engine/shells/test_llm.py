"""The class LLM: every form of prompts, chat, defaults, faults, closing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.fakes import Bench, bench
from twostroke import llm as facade
from twostroke.engine.sync_engine import SyncEngine
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.types.errors import BackendError, InvalidRequest
from twostroke.types.request import FinishReason
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.weights.packed.background_check import BackgroundCheck

TEMPLATE = ChatTemplate({"default": "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}\n{% endfor %}bot:"}, {})
SHORT = SamplingParams(max_tokens=3)


@pytest.fixture
def made() -> Bench:
    return bench()


@pytest.fixture
def asked() -> dict[str, Any]:
    return {"closed": 0}


@pytest.fixture
def llm(made: Bench, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> facade.LLM:
    def close() -> None:
        asked["closed"] += 1

    def build_sync(model: str, options: dict[str, Any], progress: Any) -> SimpleNamespace:
        asked.update(model=model, options=options, progress=progress)
        return SimpleNamespace(
            engine=SyncEngine(made.stepper),
            tokenizer=made.tokenizer,
            template=TEMPLATE,
            eyes=None,
            spec=SimpleNamespace(vocab_size=made.tokenizer.vocab_size),
            resolved={"context": 256},
            model_name="toy",
            sampling_defaults={"temperature": 0.5, "top_k": 4},
            close=close,
            weights_check=BackgroundCheck(None),
        )

    monkeypatch.setattr(facade.assemble, "build_sync", build_sync, raising=False)
    return facade.LLM("some/folder", weights="int4")


def test_it_is_built_from_what_was_asked(llm: facade.LLM, asked: dict[str, Any]) -> None:
    assert (asked["model"], asked["options"]) == ("some/folder", {"weights": "int4"})
    assert (llm.model_name, llm.has_template, llm.vocab_size) == ("toy", True, llm.tokenizer.vocab_size)
    assert llm.default_params() == SamplingParams(temperature=0.5, top_k=4)
    with llm:
        pass
    assert asked["closed"] == 1


def test_one_prompt_or_many(llm: facade.LLM, made: Bench) -> None:
    for text in ("one", "two"):
        made.prompt(text, f"answer to {text}")
    ids = llm.prompt_tokens("two")
    single = llm.generate("one", SHORT)
    assert [output.prompt for output in single] == ["one"]
    assert single[0].completions[0].finish_reason is FinishReason.LENGTH
    many = llm.generate(["one", ids], [SHORT, SamplingParams(max_tokens=5)])
    assert [output.prompt for output in many] == ["one", None]
    assert [len(output.completions[0].token_ids) for output in many] == [3, 5]
    assert many[0].text == single[0].text
    assert llm.generate(ids, SHORT)[0].text == many[1].text[: len(llm.generate(ids, SHORT)[0].text)]
    assert "".join(delta.text for delta in llm.stream("one", SHORT)) == single[0].text
    assert llm.generate([]) == []


@pytest.mark.parametrize("prompts", [[["a", "b"]], [3.5], [None], ["a", 3]])
def test_what_is_no_prompt(llm: facade.LLM, prompts: Any) -> None:
    with pytest.raises(InvalidRequest):
        llm.generate(prompts, SHORT)


def test_as_many_params_as_prompts(llm: facade.LLM) -> None:
    with pytest.raises(InvalidRequest, match="2 prompts and 1"):
        llm.generate(["a", "b"], [SHORT])


def test_chat_uses_the_template(llm: facade.LLM, made: Bench) -> None:
    made.prompt("<s>system:Be brief.\n<s>user:Hi\nbot:", "Hello")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    output = llm.chat(messages, SamplingParams(max_tokens=3))
    assert output.prompt == "<s>system:Be brief.\n<s>user:Hi\nbot:"
    assert llm.chat_tokens("Hi", "Be brief.") == list(output.prompt_token_ids) == llm.messages_tokens(messages)


def test_a_failed_completion_raises(llm: facade.LLM, made: Bench) -> None:
    made.prompt("one", "x")

    def fail(plan: object) -> None:
        raise RuntimeError("broken")

    made.executor.before = fail
    with pytest.raises(BackendError, match="failed"):
        llm.generate("one", SHORT)
    assert made.is_empty()


def test_bad_words_reach_the_engine_as_tokens() -> None:
    with facade.LLM("spark", kv_memory="20MB", threads=1) as llm:
        plain = llm.generate("The cache", SamplingParams(temperature=0, max_tokens=30))[0].text
        word = max(plain.split(), key=len)
        made = llm.generate("The cache", SamplingParams(temperature=0, max_tokens=30, bad_words=[word]))[0].text
        assert made != plain
        ids = llm.prompt_tokens("abc")
        only = llm.generate("The cache", SamplingParams(temperature=1, max_tokens=9, allowed_token_ids=ids))[0]
        assert set(only.completions[0].token_ids) <= set(ids)
