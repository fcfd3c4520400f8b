"""Repairs of calls and results of earlier turns, for templates that accept them only in some forms."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from twostroke.text.history.repair import (
    GAP,
    Message,
    Messages,
    Probe,
    Repair,
    assistant,
    call,
    joined,
    pairs,
    result,
    user,
)
from twostroke.text.history.thoughts import NAMES

ID_CHARACTERS = 9
"""The length of ids in the strictest templates, which accept only letters and digits."""
_ID = "toolu_01qzAbCdEfGhIjKlMnOpQr"
NO_RESULT = "There is no result: the call was not run."


def _calls(messages: Messages) -> list[Message]:
    return [one for message in messages for one in message.get("tool_calls", ())]


def _arguments(messages: Messages) -> list[Any]:
    return [one["function"]["arguments"] for one in _calls(messages)]


def _with_arguments(messages: Messages, change: Callable[[Any], Any]) -> Messages:
    made = []
    for message in messages:
        if "tool_calls" in message:
            calls = [
                {**one, "function": {**one["function"], "arguments": change(one["function"]["arguments"])}}
                for one in message["tool_calls"]
            ]
            message = {**message, "tool_calls": calls}
        made.append(message)
    return made


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _objects_as_text(messages: Messages) -> Messages:
    return _with_arguments(messages, _as_text)


def _texts_as_objects(messages: Messages) -> Messages:
    return _with_arguments(messages, lambda value: value if isinstance(value, Mapping) else {"arguments": value})


def short_id(found: str) -> str:
    """Returns an id in the form that the strictest templates want; equal ids stay equal."""
    if len(found) == ID_CHARACTERS and found.isascii() and found.isalnum():
        return found
    return hashlib.sha256(found.encode("utf-8", "replace")).hexdigest()[:ID_CHARACTERS]


def _short_ids(messages: Messages) -> Messages:
    made = []
    for message in messages:
        if isinstance(message.get("tool_call_id"), str):
            message = {**message, "tool_call_id": short_id(message["tool_call_id"])}
        if "tool_calls" in message:
            message = {**message, "tool_calls": [{**one, "id": short_id(one["id"])} for one in message["tool_calls"]]}
        made.append(message)
    return made


def _no_nulls(messages: Messages) -> Messages:
    return [{**message, "content": ""} if message["content"] is None else message for message in messages]


def _thinks_with_calls(message: Message) -> bool:
    return bool(message.get("tool_calls") and message["content"] and message.get(NAMES[0]))


def _thoughts_as_text(messages: Messages) -> Messages:
    """Writes the thought of a message with calls at the beginning of the message's text, for a template that accepts
    only one of the two."""
    made = []
    for message in messages:
        if _thinks_with_calls(message):
            text = GAP.join((message[NAMES[0]], message["content"]))
            message = {name: value for name, value in message.items() if name not in NAMES} | {"content": text}
        made.append(message)
    return made


def _speaks_with_calls(message: Message) -> bool:
    return bool(message.get("tool_calls") and message["content"])


def _text_before_calls(messages: Messages) -> Messages:
    """Moves the text of a message with calls into an assistant's message before it; the thought stays with the calls.
    """
    made: Messages = []
    for message in messages:
        if _speaks_with_calls(message):
            made.append(assistant(message["content"]))
            message = {**message, "content": ""}
        made.append(message)
    return made


def _one_call_each(messages: Messages) -> Messages:
    """Divides each message with several calls into one message for each call, each followed by its own result."""
    made: Messages = []
    waiting: Messages = []  # messages with calls whose results come later
    for message in messages:
        if message["role"] == "tool":
            found = next((each for each in waiting if each["tool_calls"][0]["id"] == message.get("tool_call_id")), None)
            if found is not None:
                waiting.remove(found)
                made.append(found)
            made.append(message)
            continue
        made += waiting
        waiting = []
        calls = message.get("tool_calls", ())
        if len(calls) > 1:
            waiting = [{**(message if not n else assistant("")), "tool_calls": [c]} for n, c in enumerate(calls)]
        else:
            made.append(message)
    return [*made, *waiting]


def _unanswered(messages: Messages) -> bool:
    """Returns True where a message with calls is not followed by a result."""
    return any(first.get("tool_calls") and second["role"] != "tool" for first, second in pairs(messages))


def _answered(messages: Messages) -> Messages:
    made: Messages = []
    for place, message in enumerate(messages):
        made.append(message)
        follows = messages[place + 1]["role"] if place + 1 < len(messages) else ""
        if message.get("tool_calls") and follows not in ("tool", ""):
            made += [result(NO_RESULT, one["id"], one["function"]["name"]) for one in message["tool_calls"]]
    return made


def _stray(messages: Messages) -> list[int]:
    """Returns the indices of the tool results that answer no call of an earlier message."""
    known: set[Any] = set()
    found = []
    for place, message in enumerate(messages):
        known.update(one["id"] for one in message.get("tool_calls", ()))
        if message["role"] == "tool" and message.get("tool_call_id") not in known:
            found.append(place)
    return found


def _strays_as_text(messages: Messages) -> Messages:
    strays = set(_stray(messages))
    return [user(message["content"]) if place in strays else message for place, message in enumerate(messages)]


def _speaks_after_result(messages: Messages) -> bool:
    return any((first["role"], second["role"]) == ("tool", "user") for first, second in pairs(messages))


def _into_result(messages: Messages) -> Messages:
    made: Messages = []
    for message in messages:
        if message["role"] == "user" and made and made[-1]["role"] == "tool":
            texts = (made[-1]["content"], message["content"])
            made[-1] = {**made[-1], "content": GAP.join(text for text in texts if text)}
        else:
            made.append(message)
    return made


def as_plain_text(messages: Messages) -> Messages:
    """Writes calls and results as texts of the assistant and of the user, for templates that accept neither."""
    made: Messages = []
    for message in messages:
        lines = [f"[{one['function']['name']}: {_as_text(one['function']['arguments'])}]"
                 for one in message.get("tool_calls", ())]
        if lines:
            text = GAP.join([*([message["content"]] if message["content"] else []), *lines])
            message = assistant(text)
        elif message["role"] in ("tool", "function", "ipython"):
            message = user(message["content"])
        elif message["role"] == "assistant":
            message = assistant(message["content"] or "")
        if made and made[-1]["role"] == message["role"]:
            message = joined(made.pop(), message)
        made.append(message)
    return made


_CALL = call("qztool", {"qzkey": "qzvalue"})
_ASK, _GOT = user("qzask"), result("qzresult")
_OBJECT = Probe([_ASK, assistant("", _CALL), _GOT], ("qzkey", "qzvalue"))
_TEXT = Probe([_ASK, assistant("", call("qztool", "qzbroken {")), _GOT], ("qzbroken {",))
_FOREIGN = Probe([_ASK, assistant("", call("qztool", {}, _ID)), result("qzresult", _ID)], ("qzresult",))
_NULL = Probe([_ASK, assistant(None, _CALL), _GOT], ("qzresult",), absent="None")
_WITH_CALLS = Probe(
    [_ASK, assistant("qzsay", _CALL, **dict.fromkeys(NAMES, "qzthought")), _GOT],
    ("qzsay", "qztool", "qzresult"),
    ordered=False,
)
_SPOKEN = Probe([_ASK, assistant("qzsay", _CALL), _GOT], ("qzsay", "qztool", "qzresult"), ordered=False)
_PARALLEL = Probe(
    [
        _ASK,
        assistant("", call("qzone", {}, "qzcall001"), call("qztwo", {}, "qzcall002")),
        result("qzfirst", "qzcall001", "qzone"),
        result("qzsecond", "qzcall002", "qztwo"),
    ],
    ("qzone", "qztwo", "qzfirst", "qzsecond"),
)
_UNANSWERED = Probe([_ASK, assistant("", _CALL), user("qzagain")], ("qztool", "qzagain"))
_STRAY = Probe([_ASK, assistant("qzsay"), result("qzresult"), user("qzagain")], ("qzsay", "qzresult", "qzagain"))
_AFTER = Probe([_ASK, assistant("", _CALL), _GOT, user("qzagain")], ("qzresult", "qzagain"))


def _has_object(messages: Messages) -> bool:
    return any(isinstance(value, Mapping) for value in _arguments(messages))


def _has_text(messages: Messages) -> bool:
    return any(isinstance(value, str) for value in _arguments(messages))


REPAIRS = (
    Repair("", lambda m: any(e["content"] is None for e in m), _NULL, _no_nulls),
    Repair("", lambda m: bool(_calls(m)) or any("tool_call_id" in e for e in m), _FOREIGN, _short_ids),
    Repair("a result without its call was written as a user's message", lambda m: bool(_stray(m)), _STRAY,
           _strays_as_text),
    Repair("", _has_object, _OBJECT, _objects_as_text),
    Repair("arguments that are no object were put into one", _has_text, _TEXT, _texts_as_objects),
    Repair("a thought was put in front of the text next to a call: the chat template takes one of them",
           lambda m: any(map(_thinks_with_calls, m)), _WITH_CALLS, _thoughts_as_text),
    Repair("", lambda m: any(map(_speaks_with_calls, m)), _SPOKEN, _text_before_calls),
    Repair("a call without a result was answered with a line that says so", _unanswered, _UNANSWERED, _answered),
    Repair("", lambda m: any(len(e.get("tool_calls", ())) > 1 for e in m), _PARALLEL, _one_call_each),
    Repair("a user's text was put after the tool's result: the chat template takes no message there",
           _speaks_after_result, _AFTER, _into_result),
)
