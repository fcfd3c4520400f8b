"""Images on the command line: generate, run and chat take files, by an option, by a command or in a message's words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.serve.harness import serving
from tests.vision.folders import expected_text, picture, png, smolvlm, token_ids
from tests.vision.served.test_input import OPTIONS, url_of
from tests.vision.test_exactness import opened
from twostroke import LLM
from twostroke.cli.chat import ChatText, Conversation
from twostroke.cli.main import main
from twostroke.cli.shared.images import image_part, message_of, paths_in
from twostroke.cli.store.served_model import ServedModel
from twostroke.server.build import build_server
from twostroke.types.errors import InvalidRequest
from twostroke.types.sampling.sampling_params import SamplingParams

PARAMS = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("commands")
    smolvlm(made / "model")
    for name, size in (("a.png", (50, 20)), ("b c.png", (40, 40))):
        (made / name).write_bytes(png(picture(*size)))
    return made


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with opened(folder / "model") as made:
        yield made


class Heard(ChatText):
    """Keeps what is printed."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.problems: list[str] = []
        self.answers: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def answered(self, text: str, *_: Any) -> None:
        self.answers.append(text)


def answer(llm: LLM, *content: Any) -> str:
    return llm.chat([{"role": "user", "content": list(content)}], PARAMS).completions[0].text


def test_a_conversation_takes_files(folder: Path, llm: LLM) -> None:
    image = {"type": "image", "image": str(folder / "a.png")}
    wanted = answer(llm, image, {"type": "text", "text": "What?"})
    path = str(folder / "a.png")
    for lines in ([f"/image {path}", "What?"], [f'/image "{path}"', "What?"], [f"What? {path}"], [path, "What?"]):
        heard = Heard()
        talk = Conversation(llm, PARAMS, None, heard)
        for line in lines:
            assert talk.handle(line)
        assert heard.answers[-1] == wanted and not heard.problems
        assert heard.notes == [f"Added image {path}."]
    talk.handle("And now?")  # the image stays in the history, as it was
    (folder / "a.png").touch()
    assert len(talk.messages) >= 4 and talk.messages[0]["content"][0]["image"] == png(picture(50, 20))


def test_a_path_alone_asks_about_the_image(folder: Path, llm: LLM) -> None:
    heard = Heard()
    Conversation(llm, PARAMS, None, heard, images=[image_part(str(folder / "a.png"))]).handle("What?")
    assert heard.answers == [
        answer(llm, {"type": "image", "image": str(folder / "a.png")}, {"type": "text", "text": "What?"})
    ]


def test_what_is_no_file_is_said_and_asks_nothing(folder: Path, llm: LLM) -> None:
    heard = Heard()
    talk = Conversation(llm, PARAMS, None, heard)
    assert talk.handle(f"/image {folder / 'none.png'}")
    assert "cannot be read" in heard.problems[0] and not talk.images and not heard.answers
    assert talk.handle("/picture x") and "There is no command /picture" in heard.notes[-1]
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nxx")
    assert talk.handle(f"What? {folder / 'broken.png'}")
    assert "PNG" in heard.problems[-1] and not talk.messages and not talk.images  # the next line is not burdened by it
    assert talk.handle("What?") and len(heard.answers) == 1


def test_paths_in_words(folder: Path) -> None:
    one, two = folder / "a.png", folder / "b c.png"
    spaced = str(two).replace(" ", "\\ ")
    assert paths_in(f"See {one} and {spaced} now") == ("See and now", [str(one), str(two)])
    assert paths_in(f"'{two}'") == ("", [str(two)])
    others = ("x/a.png y", f"see{one}", "http://h/a.png", "1 / 2 = a.png", "  a  b  ")
    for text in ("a.png", f"{folder}/none.png", *others):
        assert paths_in(text) == (text, [])
    assert message_of("x", []) == {"role": "user", "content": "x"}
    with pytest.raises(InvalidRequest, match="cannot be read"):
        image_part(str(folder))


def test_run_and_generate_take_files(folder: Path) -> None:
    model, file = str(folder / "model"), str(folder / "a.png")
    wanted = len(token_ids(f"<|im_start|>User:{expected_text(2, 3)}What?<end_of_utterance>\nAssistant:"))
    words = ["--local", "--json", "--max-tokens", "2", "--kv-memory", "20MB"]
    for asked in (["What?", "--image", file], [f"What? {file}"]):
        found = CliRunner().invoke(main, ["run", model, *asked, *words], catch_exceptions=False)
        assert json.loads(found.stdout)["num_prompt_tokens"] == wanted, found.output
    chat = ["chat", model, "--json", "--image", file, "--max-tokens", "2", "--kv-memory", "20MB"]
    found = CliRunner().invoke(main, chat, input="What?\n", catch_exceptions=False)
    assert json.loads(found.stdout)["num_output_tokens"] == 2
    remote = ["generate", "What?", "--model", model, "--image", "https://example.org/a.png", "--kv-memory", "20MB"]
    refused = CliRunner().invoke(main, remote)
    assert refused.exit_code == 2 and "--image-urls" in refused.output


def test_a_model_that_reads_no_images_says_so() -> None:
    found = CliRunner().invoke(main, ["generate", "What?", "--model", "spark", "--image", "data:image/png;base64,AAAA"])
    assert found.exit_code == 2 and "image" in found.output


def test_a_served_model_is_sent_the_files(folder: Path, llm: LLM) -> None:
    wanted = answer(llm, {"type": "image", "image": str(folder / "a.png")}, {"type": "text", "text": "What?"})
    with build_server(str(folder / "model"), OPTIONS) as built, serving(built.parts) as live:
        served = ServedModel(live.url, live.get("/v1/models").json["data"][0]["id"], None)
        assert served.sees
        heard = Heard()
        Conversation(served, PARAMS, None, heard).handle(f"What? {folder / 'a.png'}")
        assert heard.answers == [wanted]
        sent = served.chat_prompt([message_of("x", [image_part(str(folder / "a.png"))])])
        assert sent[0]["content"][0]["image_url"]["url"] == url_of(picture(50, 20), "image/*")
