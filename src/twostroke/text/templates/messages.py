"""Turns chat messages as clients send them into the form that templates expect.

The user's new message is checked: a part that is not text is refused. Earlier turns are accepted as far as possible,
because a user cannot change them; `notes` describe the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twostroke.text.history.calls import calls_of, id_of
from twostroke.text.history.parts import LINE_END, text_of
from twostroke.text.history.thoughts import with_thought
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes, named

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
OTHER_NAMES = {"human": "user", "ai": "assistant", "model": "assistant", "bot": "assistant"}
"""Roles by the names that other clients use."""
MAX_MESSAGES = 16_384
"""The most messages of a conversation. An agent's session of a million tokens has a few thousand."""


def line_ends(_role: str) -> str:
    """Returns the text between two parts where no template defines it."""
    return LINE_END


def normalized(
    messages: Sequence[Mapping[str, Any]], notes: Notes | None = None, joint: Callable[[str], str] = line_ends
) -> list[dict[str, Any]]:
    """Returns copies with known roles and with content as one text (null stays null next to tool calls). joint: gives
    the text between two parts of a message of a role.

    Raises InvalidRequest that names the message, such as `messages[3].content`.
    """
    if not messages:
        raise InvalidRequest("messages is empty.", param="messages", fix="Send at least one message.")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest(
            f"{len(messages):,} messages; at most {MAX_MESSAGES:,} are read.",
            fix="Summarize the oldest of them.",
            param="messages",
        )
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequest(
                f"messages[{place}] is no object with role and content.", param=f"messages[{place}]"
            )
    notes = Notes() if notes is None else notes
    new = newest(messages)
    return [_message(message, place, notes, joint, strict=place == new) for place, message in enumerate(messages)]


def newest(messages: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns the index of the user's new message, to which the model answers: the last message that is not a system
    message.

    Returns None where that message is a tool's result or the assistant's: the conversation then goes on without a new
    message.
    """
    for place in range(len(messages) - 1, -1, -1):
        role = messages[place].get("role")
        if role not in ("system", "developer"):
            return None if role in ("assistant", "tool", "function", "ipython") else place
    return None


def _message(
    message: Mapping[str, Any], place: int, notes: Notes, joint: Callable[[str], str], *, strict: bool
) -> dict[str, Any]:
    where = f"messages[{place}]"
    role = _role(message.get("role"), where, notes, strict=strict)
    made = {str(name): value for name, value in message.items() if value is not None}
    if role == "assistant":
        made = with_thought(made)
    made["role"] = role
    if "tool_call_id" in made and (answered := id_of(made.pop("tool_call_id"))) is not None:
        made["tool_call_id"] = answered
    content = message.get("content")
    between = joint(role) if isinstance(content, list | tuple) and len(content) > 1 else LINE_END
    made["content"] = text_of(content, f"{where}.content", notes, strict=strict, joint=between)
    listed = made.pop("tool_calls", None)
    calls = calls_of(listed, place, notes) if listed and role == "assistant" else []
    if calls:
        made["tool_calls"] = calls
    elif made["content"] is None:
        if strict:
            raise InvalidRequest("The last message has no content.", param=f"{where}.content")
        made["content"] = ""
    return made


def _role(role: Any, where: str, notes: Notes, *, strict: bool) -> str:
    if isinstance(role, str) and role in ROLES:
        return role
    if strict:
        raise InvalidRequest(
            "The last message has no role." if role is None else f"The role of the last message is {named(role)!r}.",
            param=f"{where}.role",
            fix="Use one of " + ", ".join(ROLES[:5]) + ".",
        )
    taken = OTHER_NAMES.get(role, "user") if isinstance(role, str) else "user"
    notes.add(f"an earlier message with the role {named(role)} was taken for one of the role {taken}")
    return taken
