"""The embedded model on a real socket, asked by the real `openai` package."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.cluster.in_process import spark_server
from tests.serve.harness import Live, wait_until

ASK: Any = [{"role": "user", "content": "What is prefill?"}]


@pytest.fixture(scope="module", params=["engine", "front"])
def spark(request: pytest.FixtureRequest) -> Iterator[Live]:
    with spark_server(request.param, {"kv_memory": "20MB", "threads": 2}) as live:
        yield live


def wait_for_rest(live: Live) -> None:
    """Waits until nothing is running, waiting or held, because the scrape may come a step too early."""

    def at_rest() -> bool:
        lines = live.get("/metrics").body.decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
        values = {name: float(value) for name, value in pairs}
        names = ("twostroke_requests_running", "twostroke_requests_waiting", "twostroke_kv_pages_used")
        return all(values[name] == 0 for name in names)

    wait_until(at_rest, "gauges at rest")


def test_streamed_and_whole_answers_are_the_same(client: OpenAI, spark: Live) -> None:
    settings: Any = {"model": "spark", "messages": ASK, "temperature": 0, "max_tokens": 40, "seed": 1}
    whole = client.chat.completions.create(**settings)
    text, usage = "", None
    for chunk in client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert text == whole.choices[0].message.content and len(text) > 20
    assert usage and whole.usage and usage.completion_tokens == whole.usage.completion_tokens
    wait_for_rest(spark)


def test_a_crowd_gets_the_same_bits_as_one(client: OpenAI, spark: Live) -> None:
    def ask(seed: int) -> tuple[str, list[float | None]]:
        # Ids without sense. With a question that it knows, the model is so sure that a seed changes nothing.
        made = client.completions.create(
            model="spark", prompt=[900, 77, 1500, 31], temperature=2, seed=seed, max_tokens=24, logprobs=1
        )
        found = made.choices[0].logprobs
        return made.choices[0].text, list(found.token_logprobs or []) if found else []

    alone = [ask(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, range(6))) == alone
    assert len(set(text for text, _ in alone)) > 1


def test_n_completions_share_a_prompt_and_differ(client: OpenAI) -> None:
    made = client.completions.create(
        model="spark", prompt=[900, 77, 1500, 31], n=3, temperature=2, seed=3, max_tokens=16
    )
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    assert len({choice.text for choice in made.choices}) > 1


def test_completions_by_text_and_by_ids(client: OpenAI) -> None:
    settings: Any = {"model": "spark", "max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}
    both = client.completions.create(prompt=["prefill is", "decode is"], **settings)
    assert [choice.index for choice in both.choices] == [0, 1]
    by_ids = client.completions.create(prompt=[[5, 6, 7], [8, 9]], logprobs=2, **settings)
    assert all(choice.logprobs and len(choice.logprobs.tokens or []) == 6 for choice in by_ids.choices)


def test_a_repeated_prompt_is_found_in_the_cache(client: OpenAI) -> None:
    messages: Any = [{"role": "system", "content": "You explain things. " * 12}, *ASK]
    usages = [client.chat.completions.create(model="spark", messages=messages, max_tokens=2).usage for _ in range(2)]
    details = usages[1] and usages[1].prompt_tokens_details
    assert details and details.cached_tokens and details.cached_tokens >= 16


def test_a_stop_string_ends_the_text_before_it(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="spark", messages=ASK, temperature=0, max_tokens=40)
    text = whole.choices[0].message.content or ""
    stop = text[10:16]
    cut = client.chat.completions.create(model="spark", messages=ASK, temperature=0, max_tokens=40, stop=stop)
    assert cut.choices[0].message.content == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_too_long_is_refused_and_the_engine_goes_on(client: OpenAI, spark: Live) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="spark", prompt="word " * 4000, max_tokens=5)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="spark", prompt=[10**6], max_tokens=5)
    assert client.completions.create(model="spark", prompt="go on", max_tokens=2).usage
    wait_for_rest(spark)


def test_a_client_that_leaves_frees_its_pages(spark: Live) -> None:
    async def leave() -> None:
        async with AsyncOpenAI(base_url=spark.url + "/v1", api_key="none", max_retries=0) as client:
            stream = await client.completions.create(
                model="spark", prompt="a", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
            )
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(leave())
    wait_for_rest(spark)
