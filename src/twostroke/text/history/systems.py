"""Repairs of system and developer messages, for templates that accept one system message at the front, or none."""

from __future__ import annotations

from twostroke.text.history.repair import (
    GAP,
    SYSTEMS,
    Message,
    Messages,
    Probe,
    Repair,
    assistant,
    joined,
    user,
)


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def leading_systems(messages: Messages) -> int:
    """Returns the number of system messages at the front."""
    return next((place for place, each in enumerate(messages) if each["role"] not in SYSTEMS), len(messages))


def _several(messages: Messages) -> bool:
    return leading_systems(messages) > 1


def _late(messages: Messages) -> bool:
    return any(each["role"] in SYSTEMS for each in messages[leading_systems(messages) :])


def _any(messages: Messages) -> bool:
    return any(each["role"] in SYSTEMS for each in messages)


def _join_leading(messages: Messages) -> Messages:
    count = leading_systems(messages)
    return [joined(*messages[:count]), *messages[count:]]


def _join_all(messages: Messages) -> Messages:
    systems = [each for each in messages if each["role"] in SYSTEMS]
    return [joined(*systems), *(each for each in messages if each["role"] not in SYSTEMS)]


def into_first_user(messages: Messages) -> Messages:
    """Puts the system text in front of the first user's text. Where no user speaks first, the system text becomes a
    user message of its own."""
    text = joined(*(each for each in messages if each["role"] in SYSTEMS))["content"]
    rest = [each for each in messages if each["role"] not in SYSTEMS]
    if rest and rest[0]["role"] == "user":
        content = GAP.join(part for part in (text, rest[0]["content"]) if part)
        return [{**rest[0], "content": content}, *rest[1:]]
    return [user(text), *rest]


_ALONE = Probe([_system("qzrule"), user("qzask")], ("qzrule", "qzask"))
_TWO = Probe([_system("qzrule"), _system("qzmore"), user("qzask")], ("qzrule", "qzmore", "qzask"))
_BETWEEN = Probe(
    [_system("qzrule"), user("qzask"), assistant("qzsay"), _system("qzmore"), user("qzagain")],
    ("qzrule", "qzask", "qzsay", "qzmore", "qzagain"),
)
_JOINED = "system messages were joined in front: the chat template takes one"
REPAIRS = (
    Repair(_JOINED, _several, _TWO, _join_leading),
    Repair(_JOINED, _late, _BETWEEN, _join_all),
    Repair("the system message was put into the first user's: the chat template takes none", _any, _ALONE,
           into_first_user),
)
