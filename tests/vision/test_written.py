"""Published chat templates around images, marks in a user's text, plans and `config`: Llama 4 and Kimi."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jinja2 import Environment

from tests.vision.folders import picture, user, write_family
from tests.vision.test_exactness import opened
from twostroke import LLM
from twostroke.cli.main import main
from twostroke.types.sampling.sampling_params import SamplingParams

NAMES = ("llama4", "kimi-k2.5", "kimi-vl")
KIMI_TEMPLATE = """\
{%- macro render_content(msg) -%}
    {%- set c = msg.get('content') -%}
    {%- if c is string -%}
      {{ c }}
    {%- elif c is not none -%}
      {% for content in c -%}
        {% if content['type'] == 'image' or 'image' in content or 'image_url' in content -%}
          <|media_begin|>image<|media_content|><|media_pad|><|media_end|>
        {% else -%}
          {{ content['text'] }}
        {%- endif -%}
      {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  <|im_{{ message['role'] }}|>{{ message['role'] }}<|im_middle|>{{ render_content(message) }}<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}
"""
"""How templates of Moonshot AI write a message's parts (Kimi-K2-Thinking.jinja of llama.cpp)."""
ONE = SamplingParams(max_tokens=1, temperature=0.0)


class Made:
    """A family's folder with a published template, its judge's parts, and the model."""

    def __init__(self, name: str, folder: Path, llm: LLM, template: str) -> None:
        from tests.vision.families.registry import FAMILIES

        self.family, self.folder, self.llm, self.template = FAMILIES[name], folder, llm, template

    def law(self, messages: list[Any], images: list[Any], written: str, mark: str) -> list[int]:
        """The token ids of the judge's template, with the judge's text in the place of each mark."""
        parts = [
            {**each, "content": [_plain(part) for part in each["content"]]}
            if isinstance(each["content"], list)
            else each
            for each in messages
        ]
        rendered = Environment(trim_blocks=True, lstrip_blocks=True).from_string(self.template)
        text = rendered.render(messages=parts, add_generation_prompt=True, bos_token="")
        pieces = text.split(mark)
        texts = self.family.texts(self.family.processed(images))
        assert len(pieces) == len(texts) + 1
        cuts = [each.removeprefix(written[0]).removesuffix(written[1]) for each in texts]
        whole = pieces[0] + "".join(cut + piece for cut, piece in zip(cuts, pieces[1:], strict=True))
        return self.family.token_ids(whole)


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image"} if part["type"] == "image" else part


@pytest.fixture(scope="module", params=NAMES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    write_family(request.param, folder)
    template = KIMI_TEMPLATE
    if request.param == "llama4":
        from tests.vision.families.llama4 import writers

        template = writers.chat_template
    (folder / "chat_template.jinja").write_text(template)
    with opened(folder, weights="f32") as llm:
        yield Made(request.param, folder, llm, template)


def test_prompts_are_those_of_published_templates(made: Made) -> None:
    images = [picture(50, 20), picture(33, 40), picture(20, 20)]
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Look closely."}]},
        user("See ", images[0], " and ", images[1], "!"),
        {"role": "assistant", "content": "Seen."},
        user(images[2], "And this?"),
    ]
    written, mark = ("", ""), "<|image|>"
    if made.family.name != "llama4":
        written, mark = ("<|media_begin|>image<|media_content|>", "<|media_end|>"), "<|media_pad|>"
    output = made.llm.chat(messages, ONE)
    assert list(output.prompt_token_ids) == made.law(messages, images, written, mark)


def test_marks_in_a_users_text_are_text(made: Made) -> None:
    """Each mark is several tokens there, and only the image has placeholders."""
    words, image = " ".join(made.family.marks), picture(40, 40)
    plain = made.llm.chat([user("Look", image)], ONE).prompt_token_ids
    rows = plain.count(made.family.placeholder)
    for parts in ((words, image), (image, words), (words, image, words)):
        ids = made.llm.chat([user(*parts)], ONE).prompt_token_ids
        assert rows > 0 and ids.count(made.family.placeholder) == rows
    assert made.family.placeholder not in made.llm.chat([user(words)], ONE).prompt_token_ids


def test_plans_count_what_prompts_have(made: Made) -> None:
    for size in ((50, 20), (90, 31)):
        width, height = size
        asked = ["plan", str(made.folder), "--hardware", "h100-sxm", "--context", "1024", "--json"]
        found = CliRunner().invoke(main, [*asked, "--image", f"{width}x{height}"], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        (image,) = json.loads(found.stdout)["images"]
        (text,) = made.family.texts(made.family.processed([picture(*size)]))
        written = "<|media_begin|>image<|media_content|>", "<|media_end|>"
        cut = text if made.family.name == "llama4" else text.removeprefix(written[0]).removesuffix(written[1])
        assert image["tokens"] == len(made.family.token_ids(cut)) and image["encode_s"] > 0
        rows = made.family.token_ids(text).count(made.family.placeholder)
        assert image["rows"] == rows


def test_config_tells_that_images_are_read(made: Made) -> None:
    found = CliRunner().invoke(main, ["config", str(made.folder)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    (line,) = [line for line in found.stdout.splitlines() if line.split()[:1] == ["images"]]
    assert line.split()[1] == "on" and "has an encoder" in line
