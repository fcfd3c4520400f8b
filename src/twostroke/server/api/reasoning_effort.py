"""reasoning_effort: a variable of the chat template, where it has one.

Agents send one effort with every request, whatever the model is. Where a template can only turn thinking on, any
effort but `none` does that; where it has no variable, the effort changes nothing, and the answer's header says so. Only
a model that always thinks cannot keep `none`: that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twostroke.text.chat_template import ChatTemplate
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes, named

EFFORT = "reasoning_effort"
SWITCH = "enable_thinking"
NONE = "none"


def _known(variables: Mapping[str, Any] | None, template: ChatTemplate, thinks: bool) -> Mapping[str, Any] | None:
    """The variables without a switch that turns thinking off, for a model that does not think.

    Clients send that switch to every model.
    """
    if not variables or variables.get(SWITCH) is not False or SWITCH in template.variables or thinks:
        return variables
    return {name: value for name, value in variables.items() if name != SWITCH}


def with_effort(
    variables: Mapping[str, Any] | None, effort: str | None, template: ChatTemplate, notes: Notes, *, thinks: bool
) -> Mapping[str, Any] | None:
    """The template's variables with this effort among them. notes: of an effort that changes nothing.
    thinks: whether the model does.

    Raises InvalidRequest where a model cannot be kept from thinking, or the variables say another effort.
    """
    variables = _known(variables, template, thinks)
    if effort is None:
        return variables
    said = dict(variables or {})
    name: str
    value: str | bool
    if EFFORT in template.variables:
        name, value = EFFORT, effort
    elif SWITCH in template.variables:
        name, value = SWITCH, effort != NONE
    elif effort != NONE or not thinks:
        if effort != NONE:
            notes.add(f"reasoning_effort {named(effort)} changes nothing: the chat template has no variable for it")
        return variables
    else:
        raise InvalidRequest(
            f"reasoning_effort {effort[:40]!r} is not supported by this model.",
            param=EFFORT,
            why="It always thinks: its chat template has no variable that turns thinking off.",
            fix="Leave it out.",
            code="unsupported_value",
        )
    if said.get(name, value) != value:
        raise InvalidRequest(
            f"reasoning_effort and chat_template_kwargs say two things about {name}.", param=EFFORT, fix="Send one."
        )
    return {**said, name: value}
