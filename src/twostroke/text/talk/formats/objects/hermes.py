"""Hermes: Qwen 2.5 and 3, QwQ, Granite 4, SmolLM3, ERNIE 4.5 and many more.

Qwen2.5-Coder may omit the tags `<tool_call>`: its published model with 1.5 billion parameters writes the call's JSON
object into a block of code. After a result it writes the object in double braces, as its template shows a call.
"""

from __future__ import annotations

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.formats.thoughts import THINK
from twostroke.text.talk.notations.object import NameFirst, ObjectNotation

CALL = CallForm(ObjectNotation(), open="<tool_call>\n", close="\n</tool_call>", between="\n")
LISTED = CallForm(ObjectNotation(), between=", ", begin="<tool_call>\n", end="\n</tool_call>", listed=True)
_TOOLS = CallForm(ObjectNotation(), between=", ", begin="<tools>\n", end="\n</tools>", listed=True)
_FENCED = CallForm(NameFirst(), between="\n", begin="```json\n", end="\n```", listed=True)
_BARE = CallForm(NameFirst(), between="\n")
FORMAT = Format(
    "hermes",
    calls=(CALL, LISTED, _TOOLS, _FENCED, _BARE),
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
    Example('{{"name": "hours", "arguments": {"day": "Mon"}}}', calls=(("hours", '{"day": "Mon"}'),)),
    Example(
        '<tool_call>\n{{"name": "hours", "arguments": {"day": "Mon"}}}\n</tool_call>\n'
        '<tool_call>\n{{"name": "bell", "arguments": {}}}\n</tool_call>So.',
        "So.",
        calls=(("hours", '{"day": "Mon"}'), ("bell", "{}")),
    ),
    Example('{{"name": "hours", "arguments": {"day": "Mon"}}}}', calls=(("hours", '{"day": "Mon"}'),)),
    Example('<tool_call>\n{"name": "bell", "arguments": {}}}\n</tool_call>So.', "So.", calls=(("bell", "{}"),)),
    Example('{{"name": "Bob"}}', '{{"name": "Bob"}}'),
    Example("{{ title }}", "{{ title }}"),
    Example('{ {"name": "bell", "arguments": {}} }', '{ {"name": "bell", "arguments": {}} }'),
    Example(
        '```json\n{\n  "name": "hours",\n  "arguments": {\n    "day": "Mon"\n  }\n}\n{\n  "name": "bell",\n'
        '  "arguments": {}\n}\n```',
        calls=(("hours", '{\n    "day": "Mon"\n  }'), ("bell", "{}")),
    ),
    Example(
        'I look.\n```json\n{"name": "hours", "arguments": {"day": "Mon"}}\n```\n',
        "I look.",
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example('```json\n[{"name": "bell", "arguments": {}}]\n```', calls=(("bell", "{}"),)),
    Example('{"name": "bell", "arguments": {}}', calls=(("bell", "{}"),)),
    Example(
        'In JSON:\n```json\n{"name": "Bob", "age": 3}\n```\n```json\n{"day": "Mon", "name": "bell"}\n```',
        'In JSON:\n```json\n{"name": "Bob", "age": 3}\n```\n```json\n{"day": "Mon", "name": "bell"}\n```',
    ),
    Example(
        '<tool_call>\n{"name": "bell", "arguments": {}}\n</tool_call>\n```python\nring()\n```',
        "```python\nring()\n```",
        calls=(("bell", "{}"),),
    ),
    Example(
        '<think>\nPerhaps\n```json\n{"name": "bell", "arguments": {}}\n```\n</think>\nNo.',
        "No.",
        'Perhaps\n```json\n{"name": "bell", "arguments": {}}\n```',
    ),
    Example("The tags <tools> and </tools>.", "The tags <tools> and </tools>."),
    Example("Write <tool_call> first.", "Write <tool_call> first."),
    Example("</think>\n\nAt nine.", "At nine.", prompt="<think>\n\n</think>\n\n"),
    Example("Hm.\n</think>\n\nAt nine.", "At nine.", "Hm.", prompt="<think>\n"),
)
