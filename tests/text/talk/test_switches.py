"""One wish about thinking reaches all variables of a template, in words that it takes."""

from __future__ import annotations

from typing import Any

import pytest

from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.switches import Switches, Wish
from twostroke.text.templates.chat_template import ChatTemplate

HEAD = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
OFF = "<think>\n\n</think>\n\n"
SYSTEM = (
    "{% set ns = namespace(off=false) %}{% for m in messages %}{% if '/no_think' in m.content %}"
    "{% set ns.off = true %}{% endif %}{% endfor %}" + HEAD + "{{ '<think></think>' if ns.off else '<think>' }}"
)
TEMPLATES: dict[str, tuple[str, str]] = {
    "enable_thinking": ("hermes", HEAD + "{% if enable_thinking is false %}" + OFF + "{% endif %}"),
    "thinking": ("deepseek31", HEAD + "{% if thinking %}<think>{% else %}</think>{% endif %}"),
    "reasoning": ("cohere", HEAD + "{% if reasoning %}<|START_THINKING|>{% endif %}"),
    "thinking_mode": ("minimax_m3", HEAD + "{{ '</mm:think>' if thinking_mode == 'disabled' else '<mm:think>' }}"),
    "thinking_budget": ("seed", HEAD + "{% if thinking_budget == 0 %}none{% else %}{{ thinking_budget }}{% endif %}"),
    "any word": ("harmony", "Reasoning: {{ reasoning_effort or 'medium' }}" + HEAD),
    "a word that closes": (
        "hunyuan3",
        HEAD + "{% if reasoning_effort == 'no_think' %}<think:opensource></think:opensource>{% endif %}",
    ),
    "few words": (
        "hermes",
        HEAD + "{% if reasoning_effort not in ['low', 'medium', 'xhigh'] %}{{ raise_exception('no') }}{% endif %}"
        "{% if enable_thinking is false %}" + OFF + "{% endif %}",
    ),
    "low is off": ("solar", HEAD + "{% if reasoning_effort in ['low', 'minimal'] %}<|think|><|end|>{% endif %}"),
    "a text of the system": ("nemotron", SYSTEM),
    "none": ("hermes", HEAD),
    "a variable of another meaning": ("hermes", HEAD + "{% if m is defined %}{{ thinking }}{% endif %}"),
}
CASES: list[tuple[str, Wish, dict[str, Any] | None]] = [
    ("enable_thinking", Wish("none"), {"enable_thinking": False}),
    ("enable_thinking", Wish("low"), {"enable_thinking": True}),
    ("enable_thinking", Wish(on=False), {"enable_thinking": False}),
    ("enable_thinking", Wish(on=True, budget=1000), {"enable_thinking": True}),
    ("thinking", Wish("none"), {"thinking": False}),
    ("thinking", Wish("high"), {"thinking": True}),
    ("reasoning", Wish(on=False), {"reasoning": False}),
    ("thinking_mode", Wish("none"), {"thinking_mode": "disabled"}),
    ("thinking_mode", Wish("minimal"), {"thinking_mode": "enabled"}),
    ("thinking_budget", Wish("none"), {"thinking_budget": 0}),
    ("thinking_budget", Wish(on=True, budget=512), {"thinking_budget": 512}),
    ("any word", Wish("low"), {"reasoning_effort": "low"}),
    ("any word", Wish("minimal"), {"reasoning_effort": "low"}),
    ("any word", Wish("max"), {"reasoning_effort": "high"}),
    ("any word", Wish("none"), None),
    ("a word that closes", Wish("none"), {"reasoning_effort": "no_think"}),
    ("a word that closes", Wish(on=False), {"reasoning_effort": "no_think"}),
    ("few words", Wish("high"), {"reasoning_effort": "xhigh", "enable_thinking": True}),
    ("few words", Wish("minimal"), {"reasoning_effort": "low", "enable_thinking": True}),
    ("few words", Wish("none"), {"enable_thinking": False}),
    ("low is off", Wish("none"), {"reasoning_effort": "minimal"}),
    ("low is off", Wish("high"), {"reasoning_effort": "high"}),
    ("none", Wish("none"), None),
    ("none", Wish("high"), None),
    ("a variable of another meaning", Wish("none"), None),
]


def switches(name: str) -> Switches:
    form, source = TEMPLATES[name]
    return Switches(ChatTemplate({"default": source}, {}), FORMATS[form])


@pytest.mark.parametrize(("name", "wish", "variables"), CASES)
def test_a_wish_reaches_the_variables_of_the_template(
    name: str, wish: Wish, variables: dict[str, Any] | None
) -> None:
    put = switches(name).put(wish)
    assert (None if put is None else (dict(put.variables), put.system)) == (
        None if variables is None else (variables, "")
    )


def test_a_text_of_the_system_turns_thinking_off_where_that_is_the_switch() -> None:
    put = switches("a text of the system").put(Wish("none"))
    assert put is not None and put.system == "/no_think" and not put.variables
    assert switches("a text of the system").put(Wish("high")) is None
