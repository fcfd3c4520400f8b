"""Command R and R+: the calls of a turn are a JSON list in a block of code. A call of `directly-answer` means that no
tool is called."""

from __future__ import annotations

from msgspec.structs import replace

from twostroke.text.talk.format import CallForm, Example, Format, ResultForm
from twostroke.text.talk.notations.object import ObjectNotation

_CALLS = CallForm(
    ObjectNotation(name="tool_name", arguments="parameters"),
    between=",\n    ",
    begin="Action: ```json\n",
    end="\n```",
    listed=True,
)
_ON_LINES = replace(_CALLS, begin="\nAction:\n```json\n", end="```\n")
FORMAT = Format(
    "command_r",
    calls=(_CALLS, _ON_LINES),
    silent=("directly-answer", "directly_answer"),
    ends=("<|END_OF_TURN_TOKEN|>",),
    result=ResultForm("system", "<results>\n", "\n</results>"),
    offer=("Action: ```json",),
)
EXAMPLES = (
    Example('Action: ```json\n[{"tool_name": "directly-answer", "parameters": {}}]\n```'),
    Example(
        'Action: ```json\n[\n    {\n        "tool_name": "hours",\n        "parameters": {"day": "Mon"}\n    }\n]```',
        calls=(("hours", '{"day": "Mon"}'),),
    ),
    Example(
        'I look.\nAction:\n```json\n[\n    {\n        "tool_name": "bell",\n        "parameters": {}\n    }\n]```\n',
        "I look.",
        calls=(("bell", "{}"),),
    ),
)
