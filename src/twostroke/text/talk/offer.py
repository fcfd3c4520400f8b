"""Tools for models whose chat template knows of none: described in a system message, called in the Hermes style."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.text.messages import normalized
from twostroke.types.notes import Notes

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_ASK = """You can call tools. The tools, as JSON schemas:
{tools}
To call one, write exactly this, once for each call:
{opening}
{{"name": "<tool>", "arguments": {{<arguments>}}}}
{closing}"""


def with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], notes: Notes | None = None
) -> list[dict[str, Any]]:
    """The messages with the tools described in front, and earlier calls and results written as text. notes: of what
    had to be changed in the messages.

    Raises InvalidRequest for messages that are wrong.
    """
    made = [_as_text(message) for message in normalized(messages, notes)]
    if not tools:
        return made
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    asked = _ASK.format(tools=lines, opening=OPEN, closing=CLOSE)
    if made and made[0].get("role") in ("system", "developer"):
        made[0]["content"] = f"{made[0]['content']}\n\n{asked}"
        return made
    return [{"role": "system", "content": asked}, *made]


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(message)
    calls = made.pop("tool_calls", None) or ()
    if calls:
        written = [f"{OPEN}\n{json.dumps(call['function'], ensure_ascii=False)}\n{CLOSE}" for call in calls]
        made["content"] = "\n".join([*([made["content"]] if made.get("content") else []), *written])
    if made.get("role") == "tool":
        made["role"] = "user"
        made["content"] = f"<tool_response>\n{made['content']}\n</tool_response>"
    return made
