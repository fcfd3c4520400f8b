"""Rewrites the ids of calls in a history into the form that the model's format writes.

A format may define the form of ids: Kimi K2 prints `functions.NAME:COUNT` and learns the tool's name from the id. A
client that kept ids of its own, or the ids of another model, would hide the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.text.history.calls import id_of
from twostroke.text.talk.ids import CallIds


def with_legal_ids(messages: Sequence[Mapping[str, Any]], ids: CallIds) -> Sequence[Mapping[str, Any]]:
    """Returns copies in which calls, counted over the conversation, and their results have ids of this form.

    A call without a name or an id stays unchanged. Where the format accepts any id, the messages themselves are
    returned.
    """
    if not (ids.template or ids.exact):
        return messages
    made, legal, count = list[Mapping[str, Any]](), dict[str, str](), 0
    for message in messages:
        calls, result = _calls_and_result(message)
        if calls:
            written = []
            for call in calls:
                named = _named(call)
                if named is not None:
                    legal[named[1]] = ids.legal(named[1], named[0], count)
                    call = {**call, "id": legal[named[1]]}
                written.append(call)
                count += 1
            message = {**message, "tool_calls": written}
        elif result in legal:
            message = {**message, "tool_call_id": legal[result]}
        made.append(message)
    return made


def call_ids_of(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The ids of all calls in a history."""
    named = (_named(call) for message in messages for call in _calls_and_result(message)[0])
    return frozenset(each[1] for each in named if each is not None)


def _calls_and_result(message: Any) -> tuple[Sequence[Any], str]:
    """Returns the calls of an assistant's message, and the id of the call that a tool's message answers. Each is empty
    where the message has none."""
    if not isinstance(message, Mapping):
        return (), ""
    calls, result = message.get("tool_calls"), message.get("tool_call_id")
    return calls if isinstance(calls, list | tuple) else (), id_of(result) or ""


def _named(call: Any) -> tuple[str, str] | None:
    """Returns the name and the id of a call; None where one of them is missing."""
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    call_id = call.get("id") if isinstance(call, Mapping) else None
    call_id = "" if call_id == "" else id_of(call_id)
    return (name, call_id) if isinstance(name, str) and call_id is not None else None
