"""reasoning_effort: a variable of the chat template, where it has one; refused where it would change nothing.

Knows: the field, the variables of templates that say how much a model thinks.
Must not know: how a template is rendered, requests of other APIs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.text.chat_template import ChatTemplate
from twostroke.types.errors import InvalidRequest

EFFORT = "reasoning_effort"
SWITCH = "enable_thinking"
NONE = "none"


def with_effort(
    variables: Mapping[str, Any] | None, effort: str | None, template: ChatTemplate, *, thinks: bool
) -> Mapping[str, Any] | None:
    """The template's variables with this effort among them. `none` turns thinking off where the template can only do
    that, and is kept anyway by a model that does not think (thinks).

    Raises InvalidRequest where the template has nothing for this effort, or the variables say another one.
    """
    if effort is None:
        return variables
    said = dict(variables or {})
    name: str
    value: str | bool
    if EFFORT in template.variables:
        name, value = EFFORT, effort
    elif effort == NONE and SWITCH in template.variables:
        name, value = SWITCH, False
    elif effort == NONE and not thinks:
        return variables
    else:
        raise InvalidRequest(
            f"reasoning_effort {effort[:40]!r} is not supported by this model.",
            param=EFFORT,
            why="Its chat template has no variable of that name.",
            fix="Send none to turn thinking off, or leave it out." if SWITCH in template.variables else "Leave it out.",
            code="unsupported_value",
        )
    if said.get(name, value) != value:
        raise InvalidRequest(
            f"reasoning_effort and chat_template_kwargs say two things about {name}.", param=EFFORT, fix="Send one."
        )
    return {**said, name: value}
