"""Finds out which parts of a conversation with tools a chat template shows: each ability is tried with a small
conversation.

    abilities = tried(template.render)      abilities.offers: the tools that a request offers reach the prompt

The template's source is not read. Parts that a template does not show are added to the prompt later, in the model's own
format of calls (`Format`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from twostroke.text.history.fit import LAST_RESORT
from twostroke.text.history.repair import Messages, assistant, call, result, user
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes


class FittedRender(Protocol):
    """Renders a conversation with a chat template, after Fit has rewritten what the template does not accept."""

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        notes: Notes | None = None,
    ) -> str:
        """Returns the text of a conversation. Raises InvalidRequest."""


class Abilities(Struct, frozen=True):
    """Which parts of a conversation with tools reach the prompt.

    offers: True where the prompt has the tools' names, descriptions and arguments. calls: True where it has an earlier
    call, its arguments and the text next to it. results: True where it has the result of a call.
    """

    offers: bool = True
    calls: bool = True
    results: bool = True

    @property
    def complete(self) -> bool:
        """True where no part of a conversation with tools is left out."""
        return self.offers and self.calls and self.results


_NAME, _KEY, _VALUE = "qzfn", "qzkey", "qzvalue"
_PARAMETERS = {
    "type": "object",
    "properties": {_KEY: {"type": "string", "description": "qzmeaning"}},
    "required": [_KEY],
}
_PLAIN_TOOL = {"name": "other", "description": "Other.", "parameters": {"type": "object", "properties": {}}}
_TOOL = {"name": _NAME, "description": "qzpurpose", "parameters": _PARAMETERS}
_CALLED: Messages = [
    user("qzask"),
    assistant("qzsay", call(_NAME, {_KEY: _VALUE})),
    result("qzresult", name=_NAME),
]


def tried(render: FittedRender) -> Abilities:
    """Finds out which parts of a conversation with tools the template shows, and returns them. The test conversation
    calls a tool that is not in its list of tools. So if the tool's name is in the prompt, the template has written the
    call."""
    offer, turn = _text(render, [user("qzask")], _TOOL), _text(render, _CALLED, _PLAIN_TOOL)
    calls = all(word in turn for word in ("qzsay", _NAME, _KEY, _VALUE))
    return Abilities(
        offers=all(word in offer for word in (_NAME, "qzpurpose", _KEY)), calls=calls, results="qzresult" in turn
    )


def _text(render: FittedRender, messages: Messages, tool: Mapping[str, Any]) -> str:
    """Returns the prompt that the template writes for these messages and this tool; "" where the template refuses them.
    """
    notes = Notes()
    try:
        text = render(messages, tools=[{"type": "function", "function": dict(tool)}], notes=notes)
    except InvalidRequest:
        return ""
    return "" if LAST_RESORT in notes.texts else text
