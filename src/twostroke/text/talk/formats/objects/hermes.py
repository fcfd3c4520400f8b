"""Hermes: Qwen 2.5 and 3, QwQ, Granite 4, SmolLM3, ERNIE 4.5 and many more."""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.object import ObjectNotation

CALL = CallForm(ObjectNotation(), open="<tool_call>\n", close="\n</tool_call>", between="\n")
LISTED = CallForm(ObjectNotation(), between=", ", begin="<tool_call>\n", end="\n</tool_call>", listed=True)
_TOOLS = CallForm(ObjectNotation(), between=", ", begin="<tools>\n", end="\n</tools>", listed=True)
FORMAT = Format(
    "hermes",
    calls=(CALL, LISTED, _TOOLS),
    thought=THINK,
    ends=("<|im_end|>",),
    result=ResultForm("user", "<tool_response>\n", "\n</tool_response>"),
    vocabulary=("<tool_call>", "</tool_call>"),
    offer=("<tool_call>\n{",),
)
EXAMPLES = (
    Example(
        'I look.\n<tool_call>\n{"name": "hours", "arguments": {"day": "Mon"}}\n</tool_call>',
        "I look.",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        '<think>\nWhich day?\n</think>\n\n<tool_call>\n{"name": "hours", "arguments": {"day": "Mon"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "bell", "arguments": {}}\n</tool_call>',
        thought="Which day?",
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example('<tool_call>{"name": "bell"}</tool_call>', calls=(("bell", "{}"),)),
    Example(
        '<tool_call>\n{"name": "hours", "arguments": "{\\"day\\": \\"Mon\\"}"}\n</tool_call>',
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        '<tool_call>\n{"name": "hours", "arguments": {"day": "</tool_call>"}}\n</tool_call>Done.',
        "Done.",
        calls=(("hours", '{"day": "</tool_call>"}'),),
    ),
    Example(
        "<tool_call>\n{'name': 'shelf', 'arguments': {'due': True, 'place': None}}\n</tool_call>",
        calls=(("shelf", '{"due": true, "place": null}'),),
    ),
    Example(
        '<think>Hm. <tool_call> is a tag.\n<tool_call>\n{"name": "bell", "arguments": {}}\n</tool_call>',
        thought="Hm. <tool_call> is a tag.",
        calls=(("bell", "{}"),),
    ),
    Example(
        '<tool_call>\n{"name": "none", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "none", "arguments": {}}\n</tool_call>',
    ),
    Example('<tool_call>\n[{"name": "bell", "arguments": {}}]\n</tool_call>', calls=(("bell", "{}"),)),
    Example(
        '<tool_call>\n{"name": "bell", "arguments": {}}\n{"name": "hours", "arguments": {"day": "Mon"}}\n'
        "</tool_call>So.",
        "So.",
        calls=(("bell", "{}"), ("hours", '{"day": "Mon"}')),
    ),
    Example('<tools>\n{"name": "bell", "arguments": {}}\n</tools>', calls=(("bell", "{}"),)),
    Example("The tags <tools> and </tools>.", "The tags <tools> and </tools>."),
    Example("Write <tool_call> first.", "Write <tool_call> first."),
    Example("</think>\n\nAt nine.", "At nine.", prompt="<think>\n\n</think>\n\n"),
    Example("Hm.\n</think>\n\nAt nine.", "At nine.", "Hm.", prompt="<think>\n"),
)
