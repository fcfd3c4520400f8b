"""The text that a template writes after an answer ends one, whatever the files of the model name."""

from __future__ import annotations

import re

import pytest

from tests.text.talk.templates import OPENINGS
from twostroke.text.talk.ends import turn_end_ids
from twostroke.text.templates.chat_template import ChatTemplate

TOKENS = {
    text: place
    for place, text in enumerate(
        ["</s>", "<|im_end|>", "<|end|>", "<|call|>", "<end_of_turn>", "<|END_RESPONSE|>", "<|EOT|>", "<|message|>",
         "<|end_of_t|>", "<|turn|>", "<|says|>"]
    )
}


class Marks:
    """A vocabulary of marks, in which any other character is token 99."""

    def __init__(self, *texts: str) -> None:
        self.ids = {text: TOKENS[text] for text in texts}
        self.special_ids = frozenset(self.ids.values())

    def id_of(self, token: str) -> int | None:
        return self.ids.get(token)

    def encode_rendered(self, text: str) -> list[int]:
        pattern = "|".join([*map(re.escape, self.ids), r"(?s:.)"])
        return [self.ids.get(piece, 99) for piece in re.findall(pattern, text)]


ROLES = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
CASES = [
    (ROLES + "<|im_end|>\n{% endfor %}", ("<|im_end|>", "</s>"), {"<|im_end|>"}),
    (ROLES + "<|end|>\n{% endfor %}", ("<|end|>", "</s>"), {"<|end|>"}),
    (ROLES + "<|end|>\n{% endfor %}", ("<|end|>", "<|call|>"), set()),
    (ROLES + "<|END_RESPONSE|><|EOT|>{% endfor %}", ("<|END_RESPONSE|>", "<|EOT|>"), {"<|EOT|>"}),
    (ROLES + "<|end|>\n{% endfor %}</s>", ("<|end|>", "</s>"), {"<|end|>", "</s>"}),
    (ROLES + "<|end|>\n{% endfor %}</s>", ("<|end|>", "</s>", "<|call|>"), {"</s>"}),
    (ROLES + "\n{% endfor %}", ("</s>",), set()),
    (ROLES + "{% endfor %}</s>", ("<|im_end|>",), set()),
    ("{{ raise_exception('no') }}", ("</s>",), set()),
    ("{% for m in messages if m.role == 'user' %}{{ m.content }}</s>{% endfor %}", ("</s>",), set()),
]
THINKING = (
    "{% for m in messages %}{% if m.reasoning_content %}{{ m.reasoning_content }}<|message|>{% endif %}"
    "{{ m.content }}<|message|>{% endfor %}"
)


@pytest.mark.parametrize(("source", "tokens", "ends"), CASES)
def test_the_last_special_token_after_an_answer(source: str, tokens: tuple[str, ...], ends: set[str]) -> None:
    assert turn_end_ids(ChatTemplate({"default": source}, {}), Marks(*tokens)) == {TOKENS[text] for text in ends}


def test_a_token_between_a_thought_and_its_answer_is_no_end() -> None:
    assert turn_end_ids(ChatTemplate({"default": THINKING}, {}), Marks("<|message|>")) == frozenset()
    without = THINKING.replace("{{ m.reasoning_content }}<|message|>", "{{ m.reasoning_content }}")
    assert turn_end_ids(ChatTemplate({"default": without}, {}), Marks("<|message|>")) == {TOKENS["<|message|>"]}


def test_a_model_without_a_template_has_none() -> None:
    assert turn_end_ids(None, Marks("</s>")) == frozenset()


@pytest.mark.parametrize("name", OPENINGS)
def test_the_opening_of_the_next_answer_holds_no_end(name: str) -> None:
    vocabulary = Marks("<|end_of_t|>", "<|turn|>", "<|says|>")
    assert turn_end_ids(ChatTemplate({"default": OPENINGS[name]}, {}), vocabulary) == {TOKENS["<|end_of_t|>"]}
