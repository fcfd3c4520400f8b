"""Images in requests of each API. Errors name the field, and the engine goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from tests.serve.harness import Live, serving
from tests.vision.folders import expected_text, image_token, picture, png, smolvlm, token_ids
from twostroke.cli.main import main
from twostroke.server.build import build_server

OPTIONS: dict[str, Any] = {"weights": "f32", "context": 1024, "threads": 1, "kv_memory": "20MB"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("seeing")
    smolvlm(folder)
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as made:
        yield made


def url_of(image: Image.Image | bytes, kind: str = "image/png") -> str:
    data = image if isinstance(image, bytes) else png(image)
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def chat(live: Live, content: Any, **more: Any) -> Any:
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0, **more}
    return live.post("/v1/chat/completions", body)


def part(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_one_picture_gives_one_answer_in_every_api(live: Live) -> None:
    image = picture(50, 20)
    url = url_of(image)
    chatted = chat(live, [part(url), text("What?")]).json
    wanted = token_ids(f"<|im_start|>User:{expected_text(2, 3)}What?<end_of_utterance>\nAssistant:")
    assert chatted["usage"]["prompt_tokens"] == len(wanted)
    answer = chatted["choices"][0]["message"]["content"]
    asked = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What?"}]
    body = {"input": [{"role": "user", "content": asked}], "max_output_tokens": 16, "temperature": 0}
    responded = live.post("/v1/responses", body).json
    assert responded["usage"]["input_tokens"] == len(wanted)
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    blocks = [{"type": "image", "source": source}, text("What?")]
    body = {"messages": [{"role": "user", "content": blocks}], "max_tokens": 4, "temperature": 0}
    message = live.post("/v1/messages", body).json
    assert message["content"][0]["text"] == answer
    counted = live.post("/v1/messages/count_tokens", {"messages": body["messages"]}).json
    assert counted["input_tokens"] == len(wanted)


def test_another_picture_or_place_gives_another_answer(live: Live) -> None:
    def logprob(*content: Any) -> float:
        made = chat(live, list(content), logprobs=True, max_tokens=1).json
        return float(made["choices"][0]["logprobs"]["content"][0]["logprob"])

    one, other = part(url_of(picture(40, 40))), part(url_of(picture(40, 40, 1)))
    assert len({logprob(one, text("x")), logprob(other, text("x")), logprob(text("x"), one)}) == 3


def test_few_tiles_where_the_detail_is_low(live: Live) -> None:
    found = chat(live, [part(url_of(picture(50, 20)), detail="low")]).json
    wanted = token_ids(f"<|im_start|>User:{expected_text(0, 0)}<end_of_utterance>\nAssistant:")
    assert found["usage"]["prompt_tokens"] == len(wanted)


def test_encodes_are_counted(live: Live) -> None:
    def counted() -> float:
        lines = live.get("/metrics").body.decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("twostroke_image_tiles_total"))

    before, new = counted(), part(url_of(picture(32, 32, 9)))
    for _ in range(2):
        assert chat(live, [new]).status == 200
    assert counted() - before == 10  # the second one found them


def test_placeholders_in_a_users_text_are_text(live: Live) -> None:
    words = "<image> and <fake_token_around_image><global-img>"
    found = chat(live, [text(words), part(url_of(picture(40, 40))), text("<image>")])
    assert found.status == 200
    alone = chat(live, words)
    assert alone.status == 200
    assert alone.json["usage"]["prompt_tokens"] > len(token_ids(words))  # letters, not control tokens
    forged = chat(live, [part(url_of(picture(40, 40))), text("<image>")], parse_special=True)
    assert forged.status == 400 and "placed 2 of 1 images" in forged.json["error"]["message"]


FILE = png(picture(30, 30))
BAD = {
    "another format": (url_of(b"%PDF-1.7 none"), "PDF"),
    "no image": (url_of(b"hello world, hello"), "no format"),
    "a cut file": (url_of(FILE[: len(FILE) // 2]), "PNG"),
    "a header alone": (url_of(FILE[:20]), "PNG"),
    "wrong base64": ("data:image/png;base64,@@@", "base64"),
    "no base64": ("data:image/png,abc", "data: URL"),
    "another kind": ("data:text/html;base64,AAAA", "data: URL"),
    "a page": ("https://example.com/x.png", "--image-urls"),
    "a file": ("file:///etc/passwd", "only data: URLs"),
    "too many pixels": (url_of(FILE[:16] + (60_000).to_bytes(4, "big") * 2 + FILE[24:29] + b"\0" * 60), ""),
    "an empty URL": ("", "no scheme"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_by_its_place(live: Live, name: str) -> None:
    url, words = BAD[name]
    found = chat(live, [text("x"), part(url)])
    assert found.status == 400
    error = found.json["error"]
    assert error["param"] == "messages[0].content[1]" and words in error["message"]
    assert chat(live, [text("x"), part(url_of(picture(30, 30)))]).status == 200


def test_ollamas_images_are_those_of_the_other_apis(live: Live) -> None:
    image = picture(50, 20)
    data = base64.b64encode(png(image)).decode()
    wanted = chat(live, [part(url_of(image)), text("What?")]).json["choices"][0]["message"]["content"]
    name = live.get("/v1/models").json["data"][0]["id"]
    asked = {"model": name, "stream": False, "options": {"temperature": 0, "num_predict": 4}}
    message = {"role": "user", "content": "What?", "images": [data]}
    assert live.post("/api/chat", {"messages": [message], **asked}).json["message"]["content"] == wanted
    assert live.post("/api/generate", {"prompt": "What?", "images": [data], **asked}).json["response"] == wanted
    assert "vision" in live.post("/api/show", {"model": name}).json["capabilities"]
    for wrong in ([5], ["%%%"]):
        refused = live.post("/api/chat", {"messages": [{**message, "images": wrong}], **asked})
        assert refused.status == 400 and live.get("/health").status == 200


def test_too_many_images_and_unknown_details_are_refused(live: Live) -> None:
    one = part(url_of(picture(2, 2)), detail="low")
    found = chat(live, [one] * 33)
    assert found.status == 400 and "32 images" in found.json["error"]["message"]
    assert chat(live, [part(url_of(picture(2, 2)), detail="most")]).status == 400


def test_a_prompt_that_is_too_long_is_refused_before_it_runs(live: Live) -> None:
    found = chat(live, [part(url_of(picture(64, 64)))] * 16)
    assert found.status == 400 and found.json["error"]["code"] == "context_length_exceeded"


def test_ids_of_placeholders_without_images_are_tokens(live: Live) -> None:
    body = {"prompt": [image_token(), 5, 6], "max_tokens": 2}
    assert live.post("/v1/completions", body).status == 200


def test_the_command_line_takes_files(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    file = tmp_path / "a.png"
    file.write_bytes(png(picture(50, 20)))
    words = ["generate", "What?", "--model", str(tmp_path), "--json", "--max-tokens", "2", "--kv-memory", "20MB"]
    found = CliRunner().invoke(main, [*words, "--image", str(file)], catch_exceptions=False)
    assert found.exit_code == 0
    wanted = token_ids(f"<|im_start|>User:{expected_text(2, 3)}What?<end_of_utterance>\nAssistant:")
    assert json.loads(found.stdout)["num_prompt_tokens"] == len(wanted)
    missing = CliRunner().invoke(main, [*words, "--image", str(tmp_path / "none.png")])
    assert missing.exit_code != 0 and "cannot be read" in missing.output
    assert CliRunner().invoke(main, [*words, "--raw", "--image", str(file)]).exit_code != 0


def test_a_model_that_does_not_see_says_so(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    with build_server(str(tmp_path), {**OPTIONS, "images": "off"}) as built, serving(built.parts) as blind:
        found = chat(blind, [text("x"), part(url_of(picture(30, 30)))])
        assert found.status == 400 and "image_url" in found.json["error"]["message"]
        assert chat(blind, "x").status == 200
