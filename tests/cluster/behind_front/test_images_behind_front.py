"""Images with several models. The front opens them, the model's process encodes them, and the bits are those of the
model alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai import OpenAI

from tests.cluster.several_models.several import Several, several
from tests.serve.harness import Live, serving
from tests.vision.folders import picture, png, smolvlm
from twostroke.server.build import build_server

OPTIONS: dict[str, Any] = {"weights": "f32", "context": 1024, "threads": 1, "kv_memory": "20MB"}
WIDE, SMALL = png(picture(90, 60)), png(picture(33, 33, 4))


def question(*images: bytes) -> list[Any]:
    urls = [f"data:image/png;base64,{base64.b64encode(each).decode()}" for each in images]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("seeing")
    smolvlm(made / "eyes")
    (made / "models.toml").write_text(
        f"""
[all]
threads = 1
[models.words]
model = "spark"
at_start = true
[models.eyes]
model = "{made / 'eyes'}"
at_start = true
weights = "f32"
context = 1024
kv_memory = "20MB"
"""
    )
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Several]:
    words = ("--models", str(folder / "models.toml"), "--stored-work", str(folder / "work"))
    with several(folder / "log", *words) as made:
        yield made


@pytest.fixture(scope="module")
def alone(folder: Path) -> Iterator[Live]:
    with build_server(str(folder / "eyes"), OPTIONS) as built, serving(built.parts) as live:
        yield live


def choices(client: OpenAI, model: str, images: tuple[bytes, ...], **fields: Any) -> Any:
    fields = {"max_tokens": 12, "seed": 5, "logprobs": True, **fields}
    made = client.chat.completions.create(model=model, messages=question(*images), **fields)
    return [each.model_dump() for each in made.choices]


def test_answers_have_the_bits_that_they_have_alone(server: Several, alone: Live) -> None:
    with OpenAI(base_url=f"{alone.url}/v1", api_key="none") as single:
        for images in ((WIDE,), (SMALL, WIDE), (WIDE, WIDE), ()):
            wanted = choices(single, "eyes", images, n=2)
            assert choices(server.client, "eyes", images, n=2) == wanted
            assert choices(server.client, "eyes", images, n=2) == wanted, "with pages and pixels that were kept"


def test_anthropics_client_and_ollamas_route_see_the_same(server: Several, alone: Live) -> None:
    source: Any = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(WIDE).decode()}
    asked: Any = [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]}]
    with (
        anthropic.Anthropic(base_url=server.url, api_key="none") as several_,
        anthropic.Anthropic(base_url=alone.url, api_key="none") as single,
    ):
        clients, fields = (several_, single), {"temperature": 0}
        found, wanted = (
            each.messages.create(model="eyes", max_tokens=8, messages=asked, extra_body=fields) for each in clients
        )
        assert found.content == wanted.content
        counts = [each.messages.count_tokens(model="eyes", messages=asked).input_tokens for each in clients]
        assert counts[0] == counts[1] == wanted.usage.input_tokens + (wanted.usage.cache_read_input_tokens or 0)
    body = {"model": "eyes", "prompt": "What?", "images": [source["data"]], "stream": False}
    body["options"] = {"temperature": 0, "num_predict": 6}
    replies = [server.http.post("/api/generate", json=body).json(), alone.post("/api/generate", body).json]
    assert replies[0]["response"] == replies[1]["response"] and replies[0]["done"]


def test_a_killed_process_loses_no_answer_to_an_image(server: Several) -> None:
    fields: dict[str, Any] = {"max_tokens": 60, "temperature": 0, "extra_body": {"ignore_eos": True}}
    asked = question(WIDE, SMALL)
    whole = server.client.chat.completions.create(model="eyes", messages=asked, **fields).choices[0].message.content
    pieces, killed = "", False
    with server.client.chat.completions.create(model="eyes", messages=asked, stream=True, **fields) as stream:
        for chunk in stream:
            pieces += chunk.choices[0].delta.content or ""
            if not killed:
                server.kill("eyes")
                killed = True
    assert pieces == whole


def test_a_model_that_sees_nothing_refuses_the_part_by_its_field(server: Several) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        choices(server.client, "words", (WIDE,))
    assert "reads no images" in str(caught.value)
    with pytest.raises(openai.BadRequestError) as caught:
        choices(server.client, "eyes", (b"no picture",))
    assert caught.value.param == "messages[0].content[0]"
    assert choices(server.client, "eyes", (SMALL,))


@pytest.mark.daily
def test_images_in_stored_work(server: Several) -> None:
    """A response is kept with its image and goes on with another model. The lines of one batch name two models."""
    url = question(WIDE)[0]["content"][0]["image_url"]["url"]
    content: Any = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What is it?"}]
    asked: Any = [{"role": "user", "content": content}]
    first = server.client.responses.create(model="eyes", input=asked, max_output_tokens=16, temperature=0)
    more = server.client.responses.create(
        model="eyes", input="And now?", previous_response_id=first.id, max_output_tokens=16, temperature=0
    )
    assert more.usage is not None and first.usage is not None
    assert more.usage.input_tokens > first.usage.input_tokens
    lines = [
        {"custom_id": f"{model}-{place}", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": model, "messages": messages, "max_tokens": 4, "temperature": 0}}
        for place in range(2)
        for model, messages in (("eyes", question(SMALL)), ("words", question()), ("nobody", question()))
    ]  # fmt: skip
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    file = server.client.files.create(file=("in.jsonl", data), purpose="batch")
    batch = server.client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    done = server.ended(batch.id)
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (6, 4, 2)
    output = server.client.files.content(done.output_file_id).text.splitlines()
    made = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, output)}
    assert {name: body["model"] for name, body in made.items()} == {
        **{"eyes-0": "eyes", "eyes-1": "eyes"},
        **{"words-0": "words", "words-1": "words"},
    }
    wanted = server.client.chat.completions.create(model="eyes", messages=question(SMALL), max_tokens=4, temperature=0)
    assert made["eyes-0"]["choices"][0]["message"]["content"] == wanted.choices[0].message.content
    errors = server.client.files.content(done.error_file_id).text.splitlines()
    assert {json.loads(line)["response"]["status_code"] for line in errors} == {404}
