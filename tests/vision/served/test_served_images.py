"""What clients send: files of many formats, one to three images, in every API to three families; images in the history
of a model that does not see."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.serve.harness import Live, serving
from tests.vision.files.test_bad_images import saved
from tests.vision.folders import picture, png, smolvlm, write_family
from tests.vision.served.test_input import url_of
from twostroke.server.build import build_server

OPTIONS: dict[str, Any] = {"context": 1024, "kv_memory": "8MB", "threads": 1}
EXIF = Image.Exif()
EXIF[0x0112] = 6
SEEN = picture(20, 12)
FILES: dict[str, bytes] = {
    "PNG": png(SEEN),
    "JPEG": saved(SEEN, "JPEG", exif=EXIF),
    "progressive JPEG": saved(SEEN, "JPEG", progressive=True),
    "palette": saved(SEEN.convert("P"), "PNG", transparency=0),
    "one bit": saved(SEEN.convert("1"), "PNG"),
    "16 bits": saved(Image.new("I;16", (20, 12), 0x8FFF), "PNG"),
    "CMYK": saved(SEEN.convert("CMYK"), "JPEG"),
    "GIF": saved(SEEN, "GIF", save_all=True, append_images=[picture(20, 12, 1)]),
    "WebP": saved(SEEN, "WEBP", save_all=True, append_images=[picture(20, 12, 1)]),
    "BMP": saved(SEEN, "BMP"),
}
Body = tuple[str, dict[str, Any]]


def base(data: bytes) -> str:
    return base64.b64encode(data).decode()


def chat_part(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url_of(data)}}


def messages_part(data: bytes) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base(data)}}


def chat(*files: bytes) -> Body:
    parts = [{"type": "text", "text": "x"}, *map(chat_part, files)]
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}


def responses(*files: bytes) -> Body:
    parts = [{"type": "input_text", "text": "x"}]
    parts += [{"type": "input_image", "image_url": url_of(data)} for data in files]
    return "/v1/responses", {"input": [{"role": "user", "content": parts}], "max_output_tokens": 16}


def messages(*files: bytes) -> Body:
    parts = [*map(messages_part, files), {"type": "text", "text": "x"}]
    return "/v1/messages", {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}


def ollama(*files: bytes) -> Body:
    message = {"role": "user", "content": "x", "images": list(map(base, files))}
    return "/api/chat", {"messages": [message], "stream": False, "options": {"num_predict": 2}}


APIS: tuple[Callable[..., Body], ...] = (chat, responses, messages, ollama)


def asked(live: Live, body: Body) -> tuple[int, dict[str, Any]]:
    path, fields = body
    reply = live.post(path, {"model": live.get("/v1/models").json["data"][0]["id"], **fields})
    return reply.status, reply.json


def prompt_tokens(said: dict[str, Any]) -> int:
    """Anthropic's API counts cached tokens apart."""
    usage = said.get("usage", said)
    counts = (usage.get(name, 0) for name in ("prompt_tokens", "input_tokens", "prompt_eval_count"))
    return sum(counts) + (usage.get("cache_read_input_tokens") or 0)


@pytest.fixture(scope="module", params=["smolvlm", "qwen3-vl", "gemma3"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    smolvlm(folder) if request.param == "smolvlm" else write_family(request.param, folder)
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as made:
        yield made


@pytest.mark.parametrize("api", APIS, ids=lambda each: each.__name__)
def test_files_of_every_format_and_one_to_three_images(live: Live, api: Callable[..., Body]) -> None:
    status, alone = asked(live, api(FILES["PNG"]))
    assert status == 200, alone
    for name, data in FILES.items():
        status, said = asked(live, api(data))
        assert status == 200, (name, said)
    counts = [prompt_tokens(alone)]
    for files in (("PNG", "BMP"), ("PNG", "GIF", "CMYK")):
        status, said = asked(live, api(*(FILES[name] for name in files)))
        assert status == 200, said
        counts.append(prompt_tokens(said))
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0, "each image of one size has as many tokens"


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("blind")
    smolvlm(folder)
    with build_server(str(folder), {**OPTIONS, "images": "off"}) as built, serving(built.parts) as made:
        yield made


def old_chat() -> Body:
    path, fields = chat(FILES["PNG"], FILES["GIF"])
    turns = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    return path, {**fields, "messages": fields["messages"] + turns}


def old_chat_of_a_tool() -> Body:
    """The picture is the result of a tool in an earlier turn, as a browser's agent keeps it."""
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [chat_part(FILES["PNG"])]},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "b"},
    ]
    return "/v1/chat/completions", {"messages": turns, "max_tokens": 2}


def old_responses() -> Body:
    path, fields = responses(FILES["PNG"])
    turns = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    return path, {**fields, "input": fields["input"] + turns}


def old_messages() -> Body:
    path, fields = messages(FILES["PNG"])
    turns = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    return path, {**fields, "messages": fields["messages"] + turns}


def old_messages_of_a_tool() -> Body:
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [messages_part(FILES["PNG"])]}
    turns = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "b"},
    ]
    return "/v1/messages", {"messages": turns, "max_tokens": 2}


def old_ollama() -> Body:
    path, fields = ollama(FILES["PNG"])
    turns = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    return path, {**fields, "messages": fields["messages"] + turns}


OLD = (old_chat, old_chat_of_a_tool, old_responses, old_messages, old_messages_of_a_tool, old_ollama)


@pytest.mark.parametrize("body", OLD, ids=lambda each: each.__name__)
def test_a_model_that_does_not_see_goes_on_after_images_of_earlier_turns(
    blind: Live, body: Callable[[], Body]
) -> None:
    status, said = asked(blind, body())
    assert status == 200, said
