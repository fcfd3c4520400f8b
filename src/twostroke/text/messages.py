"""Chat messages as clients send them, made into what templates expect.

Knows: roles, content parts, tool calls of the OpenAI shape.
Must not know: templates' syntax, HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.types.errors import InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
MAX_MESSAGES = 2048


def normalized(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies with checked roles and with content as one text (null stays null beside tool calls).

    Raises InvalidRequest that names the message, as `messages[3].content`.
    """
    if not messages:
        raise InvalidRequest("messages is empty.", param="messages", fix="Send at least one message.")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(f"{len(messages)} messages; at most {MAX_MESSAGES} are read.", param="messages")
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequest(f"{where} is no object with role and content.", param=where)
    role = message.get("role")
    if role not in ROLES:
        raise InvalidRequest(
            f"{where}.role is {role!r}.", param=f"{where}.role", fix="Use one of " + ", ".join(ROLES[:5]) + "."
        )
    made = {str(name): value for name, value in message.items() if value is not None}
    made["content"] = _text(message.get("content"), f"{where}.content")
    calls = message.get("tool_calls")
    if calls:
        made["tool_calls"] = [_tool_call(call, f"{where}.tool_calls") for call in calls]
    elif made["content"] is None:
        if role != "assistant":
            raise InvalidRequest(f"{where} has no content.", param=f"{where}.content")
        made["content"] = ""
    return made


def _text(content: Any, where: str) -> str | None:
    """A text stays; the texts of a list of parts are joined by line ends."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidRequest(f"{where} is neither text nor a list of parts.", param=where)
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else part
        if kind not in (None, "text", "input_text", "output_text") or not isinstance(text, str):
            raise InvalidRequest(
                f"{where} holds a part of type {kind!r}.", param=where, fix="This model reads text parts only."
            )
        texts.append(text)
    return "\n".join(texts)


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    """Templates want arguments as an object; clients send them as JSON text."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{where} holds a call without function.name.", param=where)
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{where} holds arguments that are not JSON.", param=where) from error
    return {**call, "function": {**function, "arguments": arguments}}
