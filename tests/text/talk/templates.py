"""Chat templates that no model has: calls in marks of their own, for each notation."""

from __future__ import annotations

from twostroke.text.templates.chat_template import ChatTemplate

_HEAD = "{% for t in tools or [] %}[{{ t | tojson }}]{% endfor %}"
_TURNS = (
    "{% for m in messages %}{% if m.role != 'assistant' %}<s:{{ m.role }}>{{ m.content }}</s>\n{% else %}<s:bot>\n"
    "THOUGHT{{ m.content or '' }}CALLS</s>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<s:bot>\n{% endif %}"
)
_THOUGHT = "{% if m.reasoning_content %}<muse>{{ m.reasoning_content }}</muse>\n{% endif %}"
_WORDS = {
    "EACH": "{% for c in m.tool_calls or [] %}",
    "PAIRS": "{% for k, v in ARGS.items() %}",
    "VALUE": "{{ v if v is string else v | tojson }}",
    "NAME": "c.function.name",
    "ARGS": "c.function.arguments",
}

CALLS = {
    "object in tags": (
        "EACH\n<do>{{ {'tool': NAME, 'with': ARGS} | tojson }}</do>"
        "{% endfor %}"
    ),
    "list of objects": (
        "{% if m.tool_calls %}<acts>[{% for c in m.tool_calls %}{{ {'fn': NAME, 'input': ARGS}"
        " | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}]</acts>{% endif %}"
    ),
    "name as the key": (
        "{% if m.tool_calls %}<acts>{% for c in m.tool_calls %}<act>{{ {NAME: ARGS} | tojson }}"
        "</act>{% endfor %}</acts>{% endif %}"
    ),
    "named": (
        "{% if m.tool_calls %}<|acts|>{% for c in m.tool_calls %}<|act|>{{ NAME }}<|with|>"
        "{{ ARGS | tojson }}<|/act|>{% endfor %}<|/acts|>{% endif %}"
    ),
    "tagged": (
        "EACH\n<run tool={{ NAME }}>\nPAIRS"
        "<arg {{ k }}>VALUE</arg>\n{% endfor %}</run>{% endfor %}"
    ),
    "keys and values": (
        "EACH<run>{{ NAME }}\nPAIRS"
        "<k>{{ k }}</k><v>VALUE</v>\n{% endfor %}</run>{% endfor %}"
    ),
    "attributes": (
        "{% if m.tool_calls %}<acts>\n{% for c in m.tool_calls %}<act name=\"{{ NAME }}\">\n"
        "PAIRS<par name=\"{{ k }}\">VALUE</par>\n"
        "{% endfor %}</act>\n{% endfor %}</acts>{% endif %}"
    ),
    "python": (
        "{% if m.tool_calls %}<py>[{% for c in m.tool_calls %}{{ NAME }}("
        "PAIRS{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}"
        "{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]</py>{% endif %}"
    ),
}
UNREADABLE = {
    "arguments as prose": "EACH<do>{{ NAME }} with {{ ARGS }}</do>{% endfor %}",
    "cut": "EACH<do>{{ NAME }}{{ (ARGS | tojson)[:18] }}</do>{% endfor %}",
}


def template(calls: str, thinks: bool = True) -> ChatTemplate:
    """A template with these calls."""
    for word, meaning in _WORDS.items():
        calls = calls.replace(word, meaning)
    text = _HEAD + _TURNS.replace("CALLS", calls).replace("THOUGHT", _THOUGHT if thinks else "")
    return ChatTemplate({"default": text}, {})

_CALL = (
    "{% for c in m.tool_calls or [] %}<act>{{ {'do': c.function.name, 'with': c.function.arguments} | tojson }}"
    "</act>{% endfor %}"
)
_EACH = "{% for m in messages %}<|turn|>{{ m.role }}<|says|>{{ m.content or '' }}" + _CALL + "<|end_of_t|>{% endfor %}"
OPENINGS = {
    "begins like a call": (
        _EACH + "{% if add_generation_prompt %}<|turn|>assistant<|says|><add>{% endif %}"
    ),
    "is always written": _EACH + "<|turn|>assistant<|says|>",
    "stands after more words": (
        _EACH + "<|turn|>system<|says|>Now act: <act>{...}</act><|end_of_t|>"
        "{% if add_generation_prompt %}<|turn|>assistant<|says|>{% endif %}"
    ),
}
"""How the opening of an answer can look in a template; a call is `<act>{...}</act>`."""
