"""An answer that the client has begun. Its text must be where the template writes an answer's text, and not in a
thought."""

from __future__ import annotations

from typing import Any

import pytest

from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.speaker import BegunAnswer, Speaker
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.types.errors import InvalidRequest

HEAD = "{% for m in messages %}<{{ m.role }}>"
TAIL = "</s>{% endfor %}{% if add_generation_prompt %}"
THOUGHT = "{% if m.role == 'assistant' %}<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}"
TEMPLATES: dict[str, tuple[str, str]] = {
    "a plain one": ("hermes", HEAD + "{{ m.content }}" + TAIL + "<assistant>{% endif %}"),
    "a space before answers": (
        "mistral_list",
        HEAD + "{{ (' ' if m.role == 'assistant' else '') + m.content | trim }}" + TAIL + "<assistant>{% endif %}",
    ),
    "a thought that is written": (
        "hermes",
        HEAD + THOUGHT + "{{ m.content }}" + TAIL + "<assistant><think>\n{% endif %}",
    ),
    "marks around an answer": (
        "cohere",
        HEAD + "{% if m.role == 'assistant' %}<|START_RESPONSE|>{{ m.content }}<|END_RESPONSE|>{% else %}"
        "{{ m.content }}{% endif %}" + TAIL + "<assistant>{% endif %}",
    ),
    "channels": (
        "harmony",
        "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
        "<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
    ),
    "a recipient": (
        "functionary32",
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}>>>all\n{% endif %}{{ m.content }}</s>"
        "{% endfor %}{% if add_generation_prompt %}<assistant>>>>{% endif %}",
    ),
}
ASK: list[dict[str, Any]] = [{"role": "user", "content": "When?"}]


def speaker(name: str, **more: Any) -> Speaker:
    form, source = TEMPLATES[name]
    return Speaker(ChatTemplate({"default": source}, {}), FORMATS[form], **more)


def last(content: str = "", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_prompt_is_that_of_transformers(name: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template(
        conversations=[[*ASK, last("At nine")]],
        chat_template=TEMPLATES[name][1],
        continue_final_message=True,
        add_generation_prompt=False,
    )
    begun = speaker(name).continued(ASK, last("At nine"), "At nine")
    assert begun.before + begun.text == rendered[0]
    assert not begun.thinks


def test_white_space_of_the_client_is_kept_where_the_template_takes_it_away() -> None:
    begun = speaker("a space before answers").continued(ASK, last("  At "), "  At ")
    assert begun.before.endswith("<assistant> ") and begun.text == "  At "


def test_a_text_stands_behind_a_thought_that_the_opening_of_an_answer_opens() -> None:
    """This template leaves the thoughts of answers out, and opens one where an answer begins."""
    source = HEAD + "{{ '' if m.role == 'assistant' else m.content }}" + TAIL + "<assistant><think>\n{% endif %}"
    made = Speaker(ChatTemplate({"default": source}, {}), FORMATS["hermes"])
    begun = made.continued(ASK, last("At nine"), "At nine")
    assert begun == BegunAnswer("<user>When?</s><assistant><think>\n</think>\n\n", "At nine")


def test_a_thought_and_a_text() -> None:
    begun = speaker("a thought that is written").continued(ASK, last("At", reasoning="Hm."), "At")
    assert begun == BegunAnswer("<user>When?</s><assistant><think>\nHm.\n</think>\n\n", "At")


@pytest.mark.parametrize(
    ("name", "message", "text", "before", "thought"),
    [
        ("a thought that is written", last(reasoning_content="Hm"), "", "<assistant><think>\n", "Hm"),
        ("a thought that is written", last("<think>\nHm"), "<think>\nHm", "<assistant><think>\n", "Hm"),
        ("a plain one", last(thinking="Hm"), "", "<assistant><think>\n", "Hm"),
        ("channels", last(reasoning="Hm"), "", "<|start|>assistant<|channel|>analysis<|message|>", "Hm"),
    ],
)
def test_a_thought_goes_on_where_the_client_asks_for_it(
    name: str, message: dict[str, Any], text: str, before: str, thought: str
) -> None:
    begun = speaker(name).continued(ASK, message, text)
    assert begun.before.endswith(before) and begun.text == thought and begun.thinks


@pytest.mark.parametrize("said", ["At", ""])
def test_a_thought_in_marks_and_a_text_are_told_apart(said: str) -> None:
    text = "<think>\nHm.\n</think>\n\n" + said
    begun = speaker("a thought that is written").continued(ASK, last(text), text)
    assert begun == BegunAnswer("<user>When?</s><assistant><think>\nHm.\n</think>\n\n", said)


def test_a_model_that_does_not_think_cannot_go_on_to() -> None:
    with pytest.raises(InvalidRequest, match="does not think"):
        speaker("a recipient").continued(ASK, last(reasoning="Hm"), "")
