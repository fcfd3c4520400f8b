"""Makes a conversation fit one chat template: parts that the template does not accept are written in another shape.

    fit = Fit(lambda messages: template.render(...))
    messages = fit.fitted(messages, notes)
"""

from __future__ import annotations

from collections.abc import Callable

from twostroke.text.history import order, systems, tool_turns
from twostroke.text.history.parts import LINE_END
from twostroke.text.history.repair import Messages, Probe, Repair, user
from twostroke.types.errors import InvalidRequest
from twostroke.types.notes import Notes

REPAIRS: tuple[Repair, ...] = (*systems.REPAIRS, *tool_turns.REPAIRS, *order.REPAIRS)
LAST_RESORT = "calls and results were written as plain text: the chat template takes no such conversation"


class Fit:
    """Rewrites conversations so that one chat template accepts them.

    render: a function that returns the text of a conversation or raises InvalidRequest. Each repair has a probe: a
    small conversation that needs the repair. The probe is rendered once, when a conversation first needs the repair;
    any thread may ask. A repair is made only where the template fails with the probe and accepts the repaired probe.
    """

    def __init__(self, render: Callable[[Messages], str]) -> None:
        self._render = render
        self._helpful: dict[int, bool] = {}
        self._parts: bool | None = None
        self._joints: dict[str, str] = {}
        self._sees: bool | None = None

    def fitted(self, messages: Messages, notes: Notes) -> Messages:
        """Returns the messages in shapes that the template accepts. notes: collects the changes that a model can see.
        """
        return self.dressed(self._repaired(messages, notes))

    def plainest(self, messages: Messages) -> Messages:
        """Returns the messages in the shape that every template for conversations accepts: turns of a user and of the
        assistant, only texts."""
        made = tool_turns.as_plain_text(messages)
        for repair in (*systems.REPAIRS[-1:], *order.REPAIRS):
            if repair.concerns(made):
                made = repair.change(made)
        return self.dressed(made)

    def _repaired(self, messages: Messages, notes: Notes) -> Messages:
        for place, repair in enumerate(REPAIRS):
            if repair.concerns(messages) and self._helps(place):
                messages = repair.change(messages)
                if repair.note:
                    notes.add(repair.note)
        return messages

    def shows(self, probe: Probe, *, ordered: bool = True) -> bool:
        """Returns whether the template accepts this conversation and leaves out none of its words."""
        try:
            text = self._render(self.dressed(probe.messages))
        except InvalidRequest:
            return False
        if probe.absent and probe.absent in text:
            return False
        if not (ordered and probe.ordered):
            return all(word in text for word in probe.words)
        place = 0
        for word in probe.words:
            place = text.find(word, place)
            if place < 0:
                return False
        return True

    def _helps(self, place: int) -> bool:
        found = self._helpful.get(place)
        if found is None:
            repair = REPAIRS[place]
            changed = repair.probe._replace(messages=repair.change(repair.probe.messages))
            found = self._helpful[place] = not self.shows(repair.probe) and self.shows(changed, ordered=False)
        return found

    def dressed(self, messages: Messages) -> Messages:
        """Returns the messages with lists of parts as contents where the template accepts nothing else."""
        if self._parts is None:
            self._parts = not self._says(_ASKED) and self._says(_as_parts(_ASKED))
        return _as_parts(messages) if self._parts else messages

    def joint(self, role: str) -> str:
        """Returns the text that the template writes between two parts of a message of this role; a line end where it
        accepts no parts."""
        if role not in self._joints:
            self._joints[role] = self._joint(role)
        return self._joints[role]

    def _joint(self, role: str) -> str:
        parts = [{"type": "text", "text": word} for word in _TWO]
        message = {"role": role, "content": parts}
        try:
            text = self._render(_ASKED + [message] if role != "user" else [message])
        except InvalidRequest:
            return LINE_END
        _, first, rest = text.partition(_TWO[0])
        between, second, _ = rest.partition(_TWO[1])
        # When the template writes a list as a value, the text between has quotes and keys.
        return between if first and second and not between.strip() else LINE_END

    def sees(self, written: str) -> bool:
        """Tests whether the template writes images itself. Returns True if it writes the text `written` once for a
        message with one part of the type image."""
        if self._sees is None:
            asked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": _WORD}]}]
            try:
                text = self._render(asked)
            except InvalidRequest:
                text = ""
            self._sees = text.count(written) == 1 and _WORD in text
        return self._sees

    def _says(self, messages: Messages) -> bool:
        try:
            return _WORD in self._render(messages)
        except InvalidRequest:
            return False


_WORD = "qzask"
_TWO = ("qzfirst", "qzsecond")
_ASKED = [user(_WORD)]


def _as_parts(messages: Messages) -> Messages:
    """Returns the messages with contents as lists of parts. An empty content becomes one empty part, because templates
    look at the first part."""
    return [{**each, "content": [{"type": "text", "text": each["content"] or ""}]} for each in messages]
