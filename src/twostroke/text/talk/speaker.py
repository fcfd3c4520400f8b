"""Turns a conversation into a prompt. The model's chat template writes the prompt. Where the template cannot show every
part of a conversation with tools, the missing parts are first written as text, in the model's own format.

    speaker.prompt(messages)                  the prompt up to the place where the answer begins
    speaker.continued(messages, last, text)   the prompt before an answer that the client has begun with `text`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from twostroke.text.history.abilities import Abilities
from twostroke.text.history.thoughts import NAMES, with_thought
from twostroke.text.talk.format import Format
from twostroke.text.talk.own_words import with_own_words
from twostroke.text.templates.messages import normalized
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes

_PLACE = "Qzgoeson qzhere"
"""The content of a placeholder answer. It is searched for in the rendered prompt, to find where an answer's text
begins. No template contains these words."""


class Template(Protocol):
    """A chat template that first rewrites the parts of a conversation that it does not accept."""

    @property
    def abilities(self) -> Abilities:
        """Which parts of a conversation with tools the template writes into the prompt: the offer of tools, calls,
        results."""

    def joint(self, role: str) -> str:
        """Returns the text that the template writes between two parts of a message of this role."""

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
        """Returns the text of a conversation. Raises InvalidRequest."""


class BegunAnswer(Struct, frozen=True):
    """The prompt of an answer that the client has begun and the model continues. before: the prompt up to the answer's
    first text. text: the beginning of the answer, as the client wrote it.

    thinks: True where that text is a thought.
    """

    before: str
    text: str = ""
    thinks: bool = False


class Speaker:
    """Writes the prompts of conversations with a model's chat template. form: the model's format of calls and thoughts,
    for parts that the template leaves out.

    hide: changes a client's text so that none of it becomes a control token.
    """

    def __init__(
        self,
        template: Template,
        form: Format,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        hide: Callable[[str], str] = str,
        notes: Notes | None = None,
    ) -> None:
        self._template, self._form, self._tools = template, form, tools
        self._variables, self._hide = variables, hide
        self._notes = Notes() if notes is None else notes

    def prompt(self, messages: Sequence[Mapping[str, Any]], *, opens: bool = True) -> str:
        """Returns the prompt's text. opens: True to add the template's opening of an answer. Raises InvalidRequest."""
        render, tools = self._template.render, self._tools
        more: dict[str, Any] = {
            "add_generation_prompt": opens, "variables": self._variables, "notes": self._notes
        }
        if self._all_shown(messages):
            return render(messages, tools=tools, each_text=self._hide, **more)
        abilities = self._template.abilities
        plain = normalized(messages, self._notes, self._template.joint)
        made = with_own_words(plain, tools or (), self._form, abilities, self._hide)
        return render(made, tools=tools if abilities.offers else None, **more)

    def continued(self, messages: Sequence[Mapping[str, Any]], last: Mapping[str, Any], text: str) -> BegunAnswer:
        """Returns the prompt of an answer that the client has begun. messages: those before the answer. last: the
        message with the beginning of the answer. text: the text of that message, "" for none.

        If `last` has a text, the model continues the text, and a thought in `last` counts as ended. If it has only a
        thought that has not ended, the model continues the thought.
        """
        thought, text, closed = self._split(last, text)
        if thought and not text and not closed:
            return BegunAnswer(self._thinking(messages), thought, thinks=True)
        message = {"role": "assistant", "content": _PLACE, **(dict.fromkeys(NAMES, thought) if thought else {})}
        before = self._placed([*messages, message])
        if before is None:
            before = self.prompt(messages)
        marks = self._form.thought
        if marks is not None and marks.opened_by(before):
            before += marks.closing.lstrip() if before.endswith("\n") else marks.closing
        return BegunAnswer(before, text)

    def _split(self, last: Mapping[str, Any], text: str) -> tuple[str, str, bool]:
        """Returns (thought, text, whether a closing mark ends the thought) of the answer that a client has begun. The
        thought is a field of the message `last`, or stands between its marks at the beginning of `text`."""
        found = with_thought(last).get(NAMES[0], "")
        marks = self._form.thought
        opening = marks.opening.strip() if marks else ""
        if marks is None or not opening or not text.lstrip().startswith(opening):
            return found, text, False
        thought, closed, rest = text.lstrip().removeprefix(opening).partition(marks.closing.strip())
        return thought.strip() if closed else thought.lstrip("\n"), rest.lstrip("\n"), bool(closed)

    def _thinking(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Returns the prompt up to the place where the text of a thought begins. Raises InvalidRequest where the model
        does not think."""
        opened, marks, said = self.prompt(messages), self._form.thought, self._form.messages
        if marks is not None:
            return opened if marks.opened_by(opened) else opened + marks.opening
        if said is not None and said.thoughts and said.channel:
            return f"{opened}{said.channel}{said.thoughts[0]}{said.body}"
        raise InvalidRequest(
            "This model does not think: its answer cannot go on from a thought.",
            param="messages",
            fix="End the messages with a text of the assistant.",
        )

    def _placed(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        """Returns the part of the rendered conversation before the last message's text; None where the template refuses
        the conversation or leaves that text out."""
        try:
            before, found, _ = self.prompt(messages, opens=False).rpartition(_PLACE)
        except InvalidRequest:
            return None
        return before if found else None

    def _all_shown(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Returns whether the template shows every part of these messages. Trying this takes some renders, so a
        conversation without tools is not tried and counts as shown."""
        about_tools = bool(self._tools) or any(map(_about_tools, messages))
        return not about_tools or self._template.abilities.complete


def _about_tools(message: Any) -> bool:
    if not isinstance(message, Mapping):
        return False
    return bool(message.get("tool_calls")) or message.get("role") in ("tool", "function", "ipython")
