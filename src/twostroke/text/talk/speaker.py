"""A conversation made into a prompt: by the template where it shows everything, in the format's own words where not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from twostroke.text.history.abilities import Abilities
from twostroke.text.messages import normalized
from twostroke.text.talk.format import Format
from twostroke.text.talk.own_words import with_own_words
from twostroke.types.notes import Notes


class Template(Protocol):
    """A chat template with its repairs."""

    @property
    def abilities(self) -> Abilities:
        """What of a conversation with tools it shows."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        each_text: Callable[[str], str] = str,
        notes: Notes | None = None,
    ) -> str:
        """The text of a conversation. Raises InvalidRequest."""


class Speaker:
    """One template, and the format of its model."""

    def __init__(self, template: Template, form: Format) -> None:
        self._template = template
        self._form = form

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        variables: Mapping[str, Any] | None,
        hide: Callable[[str], str],
        notes: Notes,
    ) -> str:
        """The prompt's text. hide: each of the client's texts as it may stand there. Raises InvalidRequest."""
        if self._all_shown(messages, tools):
            return self._template.render(messages, tools=tools, variables=variables, each_text=hide, notes=notes)
        abilities = self._template.abilities
        made = with_own_words(normalized(messages, notes), tools or (), self._form, abilities, hide)
        given = tools if abilities.offers else None
        return self._template.render(made, tools=given, variables=variables, notes=notes)

    def _all_shown(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> bool:
        """What is tried costs some renders: conversations without tools do not ask for it."""
        return not (tools or any(_about_tools(each) for each in messages)) or self._template.abilities.complete


def _about_tools(message: Any) -> bool:
    if not isinstance(message, Mapping):
        return False
    return bool(message.get("tool_calls")) or message.get("role") in ("tool", "function", "ipython")
