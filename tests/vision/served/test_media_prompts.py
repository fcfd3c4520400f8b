"""llama.cpp's prompts with images: the prompt of the other APIs, one clear error for each fault; usage counts them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.harness import Live, serving
from tests.vision.files.test_bad_images import BAD, FILE
from tests.vision.folders import picture, png, smolvlm, write_family
from tests.vision.served.test_input import OPTIONS, chat, part, text, url_of
from twostroke.server.build import build_server

MARK = "<__media__>"
KINDS = ("smolvlm", "qwen3-vl")
PATHS = ("/completion", "/completions", "/v1/completions")


@pytest.fixture(scope="module", params=KINDS)
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    smolvlm(folder) if request.param == "smolvlm" else write_family(request.param, folder)
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as made:
        yield made


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ask(live: Live, prompt: Any, path: str = "/completion", **more: Any) -> Any:
    return live.post(path, {"prompt": prompt, "max_tokens": 4, "temperature": 0, **more})


def given(words: str, *files: str) -> dict[str, Any]:
    return {"prompt_string": words, "multimodal_data": list(files)}


def rendered(live: Live, content: Any) -> str:
    """The prompt of a conversation with a mark of llama.cpp in place of its image."""
    body = {"messages": [{"role": "user", "content": content}]}
    whole = str(live.post("/apply-template", body).json["prompt"])
    return whole


def test_a_prompt_with_an_image_is_that_of_a_conversation(live: Live) -> None:
    """The template is written by hand around the mark. Both give as many tokens and the same answer."""
    image = picture(50, 20)
    told = chat(live, [text("See "), part(url_of(image)), text(" and say")]).json
    before, after = rendered(live, [text("See @@ and say")]).split("@@")
    asked = ask(live, given(before + MARK + after, base64_of(png(image)))).json
    again = ask(live, given(before + MARK + after, url_of(image)), "/v1/completions").json
    assert asked["content"] == told["choices"][0]["message"]["content"] == again["choices"][0]["text"]
    assert again["usage"]["prompt_tokens"] == told["usage"]["prompt_tokens"]
    assert again["usage"]["prompt_tokens_details"]["image_tokens"] > 0


def test_usage_counts_the_tokens_of_images(live: Live) -> None:
    one, two = part(url_of(picture(40, 40))), part(url_of(picture(33, 50)))

    def counted(*content: Any) -> tuple[int, int]:
        found = chat(live, list(content)).json["usage"]
        return found["prompt_tokens_details"].get("image_tokens", 0), found["prompt_tokens"]

    (none, _), (first, whole), (both, _) = counted(text("x")), counted(one, text("x")), counted(one, two, text("x"))
    assert none == 0 < first < both < whole * 3 and first < whole
    asked = {"type": "input_image", "image_url": url_of(picture(40, 40))}
    body = {"input": [{"role": "user", "content": [asked]}], "max_output_tokens": 16}
    told = live.post("/v1/responses", body).json
    assert told["usage"]["input_tokens_details"]["image_tokens"] == first
    assert "prompt_tokens_details" in chat(live, [text("x")]).json["usage"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", [*BAD, "wrong base64", "a page", "a file"])
def test_a_bad_image_is_one_clear_error(live: Live, path: str, name: str) -> None:
    others = {"wrong base64": ("@@@", "base64"), "a page": ("data:text/html;base64,AAAA", "data: URL")}
    data, words = others[name] if name in others else ("file", "") if name == "a file" else BAD[name]
    file = data if isinstance(data, str) else base64_of(data)
    found = ask(live, given(f"one {MARK} two {MARK}", base64_of(FILE), file), path)
    assert found.status == 400 and words in found.body.decode()
    assert found.json["error"]["param"] == "prompt.multimodal_data[1]"


@pytest.mark.parametrize(
    ("prompt", "field", "words"),
    [
        (given("no mark", base64_of(FILE)), "prompt.prompt_string", "0 marks"),
        (given(f"{MARK} {MARK}", base64_of(FILE)), "prompt.prompt_string", "2 marks"),
        (given(MARK * 33, *[base64_of(FILE)] * 33), "prompt.multimodal_data[32]", "32 images"),
        ({"multimodal_data": [base64_of(FILE)]}, "prompt", "prompt_string"),
        ({"prompt_string": MARK, "multimodal_data": base64_of(FILE)}, "prompt.multimodal_data", "array"),
        (given(MARK, *[7]), "prompt.multimodal_data[0]", "str"),
        (given(""), "prompt", "empty"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(live: Live, prompt: Any, field: str, words: str) -> None:
    found = ask(live, prompt)
    error = found.json["error"]
    assert found.status == 400 and words in error["message"] and str(error["param"]).startswith(field)


def test_a_text_with_the_models_own_mark_is_refused_next_to_an_image(live: Live) -> None:
    own = {"smolvlm": "<image>", "qwen3-vl": "<|image_pad|>"}
    for written in own.values():
        found = ask(live, given(f"{written} {MARK}", base64_of(FILE)))
        assert found.status in (200, 400)  # another model's mark is text
        if found.status == 400:
            assert found.json["error"]["param"] == "prompt.prompt_string"
    assert any(ask(live, given(f"{each} {MARK}", base64_of(FILE))).status == 400 for each in own.values())


def test_a_prompt_without_images_is_a_text(live: Live) -> None:
    assert ask(live, {"prompt_string": "words"}).json["content"] == ask(live, "words").json["content"]
    found = ask(live, given(MARK, base64_of(FILE)), "/v1/completions", suffix="end")
    assert found.status == 400


def test_a_model_that_does_not_see_says_so(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    with build_server(str(tmp_path), {**OPTIONS, "images": "off"}) as built, serving(built.parts) as blind:
        found = ask(blind, given(MARK, base64_of(FILE)))
        assert found.status == 400 and "reads no images" in found.json["error"]["message"]
        assert found.json["error"]["param"] == "prompt.multimodal_data[0]"
        assert ask(blind, given("words")).status == 200
