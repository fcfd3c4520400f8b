"""The real `openai` package with a known engine: what it parses is what was made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.serve.fakes import CONTEXT, MODEL, FakeEngine, Turnstile, fake_parts
from tests.serve.harness import Live, serving

USER: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def client(live: Live) -> Iterator[OpenAI]:
    with OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def test_models(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_chat(client: OpenAI) -> None:
    made = client.chat.completions.create(model=MODEL, messages=USER, n=2, logprobs=True, top_logprobs=1)
    assert [c.message.content for c in made.choices] == ["hello world", "HELLO WORLD"]
    assert [c.finish_reason for c in made.choices] == ["stop", "stop"]
    content = made.choices[0].logprobs and made.choices[0].logprobs.content
    assert content and content[0].token == "h" and content[0].top_logprobs[0].bytes == [104]
    assert made.usage and made.usage.completion_tokens == 24
    assert made.usage.prompt_tokens_details and made.usage.prompt_tokens_details.cached_tokens == 3
    assert made.system_fingerprint
    assert made._request_id


def test_chat_stream(client: OpenAI) -> None:
    texts, ends, usage = {0: "", 1: ""}, [], None
    options: Any = {"include_usage": True}
    for chunk in client.chat.completions.create(model=MODEL, messages=USER, n=2, stream=True, stream_options=options):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends += [choice.finish_reason] if choice.finish_reason else []
        usage = chunk.usage
    assert texts == {0: "hello world", 1: "HELLO WORLD"}
    assert ends == ["stop", "stop"]
    assert usage and usage.completion_tokens == 24


def test_the_stream_helper_of_the_package(client: OpenAI) -> None:
    options: Any = {"include_usage": True}
    with client.chat.completions.stream(model=MODEL, messages=USER, stream_options=options, logprobs=True) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.done" in kinds
    assert final.choices[0].message.content == "hello world"
    assert final.usage and final.usage.completion_tokens == 12
    content = final.choices[0].logprobs and final.choices[0].logprobs.content
    assert content and len(content) == 12


def test_completions(client: OpenAI) -> None:
    made = client.completions.create(model=MODEL, prompt=[[1, 2], [3]], max_tokens=3, logprobs=2, echo=False)
    assert [c.text for c in made.choices] == ["hel", "hel"]
    assert [c.finish_reason for c in made.choices] == ["length", "length"]
    assert made.choices[1].logprobs and made.choices[1].logprobs.tokens == ["h", "e", "l"]
    text = "".join(c.choices[0].text for c in client.completions.create(model=MODEL, prompt="x", stream=True))
    assert text == "hello world"


def test_errors_arrive_as_the_packages_classes(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="x" * CONTEXT)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "prompt"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=USER)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=USER, temperature=9, stream=True)


def test_an_error_within_a_stream_raises_in_the_client() -> None:
    engine = FakeEngine()
    engine.error, engine.error_after = RuntimeError("no"), 4
    with serving(fake_parts(engine)) as live, OpenAI(base_url=live.url + "/v1", api_key="none") as client:
        seen = []
        with pytest.raises(openai.APIError, match="failed to answer"):
            for chunk in client.chat.completions.create(model=MODEL, messages=USER, stream=True):
                seen.append(chunk.choices[0].delta.content)
        assert seen == ["h", "e", "l", "l"]


def test_keys_and_retries() -> None:
    engine = FakeEngine()
    with serving(fake_parts(engine, api_key="right")) as live:
        with OpenAI(base_url=live.url + "/v1", api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        with OpenAI(base_url=live.url + "/v1", api_key="right") as client:
            assert client.models.list().data
            live.parts.admission.door.draining = True
            with pytest.raises(openai.InternalServerError) as caught:
                client.with_options(max_retries=0).chat.completions.create(model=MODEL, messages=USER)
            assert caught.value.status_code == 503


def test_async_client_many_at_once(live: Live) -> None:
    async def main() -> list[str]:
        async with AsyncOpenAI(base_url=live.url + "/v1", api_key="none") as client:

            async def whole() -> str:
                made = await client.chat.completions.create(model=MODEL, messages=USER)
                return made.choices[0].message.content or ""

            async def streamed() -> str:
                stream = await client.completions.create(model=MODEL, prompt="x", stream=True)
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*[made() for made in (whole, streamed) * 12])

    assert asyncio.run(main()) == ["hello world"] * 24


def test_closing_a_stream_in_the_client_aborts() -> None:
    from tests.serve.harness import wait_until

    engine = FakeEngine("a" * 500)
    engine.gate = Turnstile(1)
    with serving(fake_parts(engine)) as live, OpenAI(base_url=live.url + "/v1", api_key="none") as client:
        stream = client.chat.completions.create(model=MODEL, messages=USER, stream=True)
        next(iter(stream))
        stream.close()
        wait_until(lambda: engine.live == 0, "the request aborted")
        assert engine.closed_early == 1
