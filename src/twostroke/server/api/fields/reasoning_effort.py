"""Reads a request's wish about thinking, from the fields of many APIs, as one Wish.

Agents send one effort with every request, whatever the model is. When a template can only turn thinking on, any effort
but `none` turns it on. When a template has no variable for it, the effort changes nothing, and the answer's header has
a note. Only a model that always thinks cannot obey `none`: such a request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from twostroke.text.talk.format import Format
from twostroke.text.talk.switches import BUDGETS, EFFORT, NONE, VALUES, Put, Switches, Wish
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes, named

KINDS = ("enabled", "disabled", "adaptive", "auto")


def wish_of(effort: str | None, thinking: Any = None) -> Wish:
    """Returns how much the client wants the model to think. thinking: {"type": "enabled", "disabled" or "adaptive",
    "budget_tokens": N}, as Anthropic and others name it. Raises InvalidRequest."""
    found = thinking if isinstance(thinking, Mapping) else {}
    kind, budget = found.get("type"), found.get("budget_tokens")
    if kind is not None and kind not in KINDS:
        raise InvalidRequest(
            f"thinking.type is {named(kind)!r}.", param="thinking", fix=f"Use one of {', '.join(KINDS)}."
        )
    if isinstance(budget, float) and budget.is_integer():
        budget = int(budget)
    if budget is not None and (type(budget) is not int or budget < 0):
        raise InvalidRequest("The thinking budget must be a whole number of at least 0.", param="thinking")
    return Wish(effort, None if kind is None else kind != "disabled", budget)


def with_wish(
    variables: Mapping[str, Any] | None, wish: Wish, template: ChatTemplate, form: Format, notes: Notes
) -> Put:
    """Returns the values of the template's variables with which the model thinks as much as the request asks for.
    variables: the values that the request itself gives. wish: how much the model should think. notes: gets a note when
    the wish changes nothing.

    Raises InvalidRequest when a model cannot be kept from thinking, or when the variables contradict the wish.
    """
    said = dict(variables or {})
    switches = Switches(template, form)
    own = _wish_in(said, template)
    system = ""
    if own is not None:
        translated = switches.put(own)
        if translated is not None or own.off != form.thinks:  # otherwise `said` stays as it is
            said = {name: value for name, value in said.items() if name not in _foreign(said, template)}
        if translated is not None:
            said, system = {**translated.variables, **said}, translated.system
    if wish == Wish():
        return Put(said, system)
    put = switches.put(wish)
    if put is None:
        _unkept(wish, notes, thinks=form.thinks)
        return Put(said, system)
    if wish.budget and not wish.off and form.thinks and wish.budget not in put.variables.values():
        notes.add(f"the thinking budget of {wish.budget} tokens is not enforced: the template has no variable for it")
    for name, value in put.variables.items():
        if said.get(name, value) != value:
            raise InvalidRequest(
                f"reasoning_effort and chat_template_kwargs set different values for {name}.",
                param=EFFORT,
                fix="Send one.",
            )
    return Put({**said, **put.variables}, put.system)


def _wish_in(said: Mapping[str, Any], template: ChatTemplate) -> Wish | None:
    """Returns how much the model should think, as a client tells it with variables of another model's template. Returns
    None when the variables do not tell it. said: the template variables that the request gives."""
    wish = Wish()
    foreign = {name: said[name] for name in _foreign(said, template)}
    for name, (_, off) in VALUES.items():
        if name in foreign:
            wish = structs.replace(wish, on=foreign[name] != off)
    for name in BUDGETS:
        if isinstance(foreign.get(name), int):
            wish = structs.replace(wish, budget=foreign[name])
    if isinstance(foreign.get(EFFORT), str):
        wish = structs.replace(wish, effort=foreign[EFFORT])
    return None if wish == Wish() else wish


def _foreign(said: Mapping[str, Any], template: ChatTemplate) -> set[str]:
    """Returns the names of those variables of the request that are switches for thinking in other models' templates,
    but not in this one. said: the template variables that the request gives."""
    return {name for name in said if name in (*VALUES, *BUDGETS, EFFORT) and name not in template.variables}


def _unkept(wish: Wish, notes: Notes, *, thinks: bool) -> None:
    if wish.effort == NONE and wish.on is None and thinks:
        raise InvalidRequest(
            f"reasoning_effort {NONE!r} is not supported by this model.",
            param=EFFORT,
            why="It always thinks: its chat template has no variable that turns thinking off.",
            fix="Leave it out.",
            code="unsupported_value",
        )
    if wish.effort not in (None, NONE):
        notes.add(f"reasoning_effort {named(wish.effort)} changes nothing: the chat template has no variable for it")
    elif wish.off and thinks:
        notes.add("thinking cannot be turned off: the chat template has no variable for it")
