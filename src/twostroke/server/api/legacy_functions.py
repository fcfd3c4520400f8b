"""`functions` and `function_call`, which came before `tools`: translated to tools on the way in, back on the way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twostroke.server.api.changed.kept_tools import AskedTool
from twostroke.server.api.schema import ChatRequest
from twostroke.server.api.shape import Block
from twostroke.server.api.shapes.chat import ChatShape
from twostroke.types.errors import InvalidRequest

_OLD_NAMES = {"tools": "functions", "tool_choice": "function_call"}


def to_tools(request: ChatRequest) -> bool:
    """Change the request in place. Returns True when its answer is expected in the older form.

    Raises InvalidRequest for a wrong function_call, or for both forms at once.
    """
    functions, choice = request.functions, request.function_call
    request.functions = request.function_call = None
    request.messages = _messages(request.messages)
    if not functions:
        if isinstance(choice, dict) or choice not in (None, "none", "auto"):
            raise _wrong("There are no functions to call.")
        return False
    if request.tools or request.tool_choice is not None:
        raise InvalidRequest("The request has both functions and tools.", param="functions", fix="Send tools alone.")
    request.tools = [AskedTool(function=function) for function in functions]
    request.tool_choice = _choice(choice)
    request.parallel_tool_calls = False  # the older form has room for one call
    return True


def in_old_words(error: InvalidRequest) -> InvalidRequest:
    """Returns the error with the names of the older fields."""
    error.param = _OLD_NAMES.get(error.param or "", error.param)
    return error


def _choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if isinstance(choice, dict):
        return {"type": "function", "function": {"name": choice.get("name")}}
    if choice not in (None, "none", "auto"):
        raise _wrong(f"function_call is {choice[:60]!r}.")
    return choice


def _messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the messages with calls and results of earlier turns in the form that templates know. Ids are invented,
    because the older form has none."""
    made: list[dict[str, Any]] = []
    call_id = "call_0"
    for place, message in enumerate(messages):
        if message.get("function_call") is not None and not message.get("tool_calls"):
            call_id = f"call_{place}"
            call = {"id": call_id, "type": "function", "function": message["function_call"]}
            message = {**message, "tool_calls": [call]}
        if message.get("role") == "function":
            message = {**message, "role": "tool", "tool_call_id": call_id}
        made.append({name: value for name, value in message.items() if name != "function_call"})
    return made


def _wrong(what: str) -> InvalidRequest:
    fix = 'Send functions and none, auto or {"name": ...}; better, tools and tool_choice.'
    return InvalidRequest(what, param="function_call", fix=fix)


class FunctionChatShape(ChatShape):
    """chat.completion with `function_call`, which has no id."""

    called = "function_call"

    def call_parts(self, blocks: Sequence[Block]) -> dict[str, Any]:
        return {"function_call": {"name": blocks[0].name, "arguments": blocks[0].text}}

    def call_began(self, _place: int, block: Block) -> dict[str, Any]:
        return {"function_call": {"name": block.name, "arguments": ""}}

    def call_grew(self, _place: int, _block: Block, text: str) -> dict[str, Any]:
        return {"function_call": {"arguments": text}}
