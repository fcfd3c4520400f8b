"""Repairs the order of turns, for templates that want a user and the assistant to alternate."""

from __future__ import annotations

from twostroke.text.history.repair import Messages, Probe, Repair, assistant, is_turn, joined, pairs, user
from twostroke.text.history.systems import leading_systems

BEGINNING = "(The conversation goes on from an earlier one.)"


def _two(messages: Messages, role: str) -> bool:
    return any(is_turn(first, role) and second["role"] == role for first, second in pairs(messages))


def _join(messages: Messages, role: str) -> Messages:
    made: Messages = []
    for message in messages:
        if message["role"] == role and made and is_turn(made[-1], role):
            message = joined(made.pop(), message)
        made.append(message)
    return made


def _begins_late(messages: Messages) -> bool:
    place = leading_systems(messages)
    return place == len(messages) or messages[place]["role"] != "user"


def _begun(messages: Messages) -> Messages:
    place = leading_systems(messages)
    return [*messages[:place], user(BEGINNING), *messages[place:]]


REPAIRS = (
    Repair("an earlier turn of the assistant without a question got a line in front", _begins_late,
           Probe([assistant("qzsay"), user("qzask")], ("qzsay", "qzask")), _begun),
    Repair("messages of a user in a row were joined: the chat template wants turns", lambda m: _two(m, "user"),
           Probe([user("qzask"), user("qzagain")], ("qzask", "qzagain")), lambda m: _join(m, "user")),
    Repair("messages of the assistant in a row were joined: the chat template wants turns",
           lambda m: _two(m, "assistant"),
           Probe([user("qzask"), assistant("qzsay"), assistant("qzmore"), user("qzagain")],
                 ("qzask", "qzsay", "qzmore", "qzagain")), lambda m: _join(m, "assistant")),
)
