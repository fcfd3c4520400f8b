"""Writes the parts of a conversation with tools that a chat template leaves out, in the model's own format of calls.

    messages = with_own_words(messages, tools, form, template.abilities, hide)

The offer of tools stands in a system message, a call in the assistant's text, a result in a user's text. Control tokens
in a client's texts are replaced by placeholders (quoting.py). The format's own marks become control tokens, as the
model knows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twostroke.text.history.abilities import Abilities
from twostroke.text.history.repair import GAP
from twostroke.text.talk.format import Format
from twostroke.text.talk.write import written

_ASK = """You can call tools. The tools, as JSON schemas:
{tools}
To call one, write exactly this, once for each call:
{call}"""
_EXAMPLE = ("<tool>", {"<argument>": "<value>"})
_SYSTEMS = ("system", "developer")
_RESULTS = ("tool", "function", "ipython")

Hide = Callable[[str], str]
"""A function that returns a client's text with placeholders in place of control tokens' texts (quoting.py), so that
they do not become control tokens of the prompt."""


def with_own_words(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    form: Format,
    abilities: Abilities,
    hide: Hide,
) -> list[dict[str, Any]]:
    """Returns copies of the messages in which tools, calls and results that the template leaves out are written as
    text, in the model's format. messages: the messages as `normalized` returns them. abilities: what the template
    writes itself. hide: applied to every text of the client."""
    made: list[dict[str, Any]] = hidden(messages, hide)
    if not abilities.calls:
        made = _with_calls(made, form)
    if not (abilities.calls and abilities.results):
        made = _with_results(made, messages, form)
    if tools and not abilities.offers:
        asked = offer(hidden(tools, hide), form)
        if made and made[0].get("role") in _SYSTEMS:
            return [{**made[0], "content": GAP.join(filter(None, (made[0]["content"], asked)))}, *made[1:]]
        made = [{"role": "system", "content": asked}, *made]
    return made


def offer(tools: Sequence[Mapping[str, Any]], form: Format) -> str:
    """Describes the tools in words, and how this format calls them."""
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    name, arguments = _EXAMPLE
    call = written(form, [(name, arguments, form.ids.new("a1b2c3d4e5" * 3, name, 0))])
    return _ASK.format(tools=lines, call=call.strip())


def hidden(value: Any, hide: Hide) -> Any:
    """Returns a copy of JSON-like data in which `hide` was applied to every string, keys too."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hidden(key, hide): hidden(item, hide) for key, item in value.items()}
    return [hidden(item, hide) for item in value] if isinstance(value, list | tuple) else value


def _with_calls(messages: Sequence[dict[str, Any]], form: Format) -> list[dict[str, Any]]:
    made, count = [], 0
    for message in messages:
        calls = message.get("tool_calls")
        if calls:
            own = [_call(call) for call in calls]
            marked = [(name, given, form.ids.legal(i, name, count + n)) for n, (name, given, i) in enumerate(own)]
            count += len(own)
            said = message["content"] or ""
            if said and (form.messages or form.calls[0].bare):  # such a call must come first in its message
                made.append({**message, "content": said})
                del made[-1]["tool_calls"]
                said = ""
            text = "\n".join(filter(None, (said, written(form, marked).strip())))
            message = {**message, "content": text}
            del message["tool_calls"]
        made.append(message)
    return made


def _call(call: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], str]:
    function = call["function"]
    arguments = function["arguments"]
    return function["name"], arguments if isinstance(arguments, Mapping) else {"arguments": arguments}, call["id"]


def _with_results(
    messages: Sequence[dict[str, Any]], before: Sequence[Mapping[str, Any]], form: Format
) -> list[dict[str, Any]]:
    """Returns the messages with each tool's result as a text of the user. before: the original messages, whose calls
    have the names of the tools."""
    names = {call["id"]: call["function"]["name"] for each in before for call in each.get("tool_calls", ())}
    made: list[dict[str, Any]] = []
    following = False
    for message in messages:
        if message["role"] not in _RESULTS:
            made.append(message)
            following = False
            continue
        text = _result(message, names, form)
        if following:  # all results of one turn go into one user message
            made[-1] = {**made[-1], "content": f"{made[-1]['content']}\n{text}"}
        else:
            made.append({"role": "user", "content": text})
        following = True
    return made


def _result(message: Mapping[str, Any], names: Mapping[Any, str], form: Format) -> str:
    call_id = message.get("tool_call_id") or ""
    name = message.get("name") or names.get(call_id, "")
    opening = form.result.open.replace("{name}", str(name)).replace("{id}", str(call_id))
    return f"{opening}{message['content']}{form.result.close}"
