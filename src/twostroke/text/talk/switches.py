"""Puts a client's wish about thinking into the variables that a chat template has for it.

    switches = Switches(template, form)
    switches.put(Wish(effort="none")) == Put({"enable_thinking": False})

The words that a template accepts are found by trying: a word that it refuses is replaced by the nearest one. Where a
template prints any word unchanged, the words low, medium and high are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from twostroke.text.talk.format import Format
from twostroke.text.talk.learn.probe import ASK, Renders
from twostroke.types.errors import InvalidRequest

EFFORT, NONE = "reasoning_effort", "none"
WORDS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Efforts from the least to the most."""
COMMON_WORDS = ("low", "medium", "high")
OFF_WORDS = (NONE, "no_think", "off", "disabled", "minimal", "low")
"""Words that turn thinking off in some templates."""
VALUES: Mapping[str, tuple[Any, Any]] = {
    "enable_thinking": (True, False),
    "thinking": (True, False),
    "reasoning": (True, False),
    "thinking_mode": ("enabled", "disabled"),
}
"""Variables that turn thinking on and off, each with its value for on and its value for off."""
BUDGETS = ("thinking_budget", "reasoning_budget")
SYSTEM_SWITCH = "/no_think"
_ODD = "qzeffort"


class Wish(Struct, frozen=True):
    """How much a model should think. effort: a word for the effort. on: whether the model thinks at all. budget: the
    most tokens of a thought."""

    effort: str | None = None
    on: bool | None = None
    budget: int | None = None

    @property
    def off(self) -> bool:
        """True where the model should not think."""
        return self.on is False or self.budget == 0 or (self.effort == NONE and self.on is not True)


class Put(Struct, frozen=True):
    """What is put into a prompt so that the model thinks as much as the client asks (Wish). variables: the values for
    the template's variables. system: a text that belongs into the system message."""

    variables: Mapping[str, Any]
    system: str = ""


class Switches:
    """Finds the variables with which one template turns thinking on, off or to an effort, and gives them values."""

    def __init__(self, template: Renders, form: Format) -> None:
        self._template, self._form = template, form
        self._known = template.variables

    def put(self, wish: Wish) -> Put | None:
        """Returns the template's variables that express how much the client wants the model to think. Returns None
        where the template has no variable, or text, for it."""
        off = wish.off
        made = {name: values[off] for name, values in VALUES.items() if self._switches(name)}
        if wish.effort in (None, NONE) and wish.on is None and not off:
            made = {}
        for name in BUDGETS:
            if name in self._known and (off or wish.budget is not None):
                made[name] = 0 if off else wish.budget
        if EFFORT in self._known and (off or wish.effort is not None):
            word = self._word_for(wish.effort or "", off=off, switched=bool(made))
            made |= {} if word is None else {EFFORT: word}
        if not made and off and self._closed({}, SYSTEM_SWITCH) and not self._closed({}):
            return Put({}, SYSTEM_SWITCH)
        return Put(made) if made else None

    def _switches(self, name: str) -> bool:
        """Returns True where the template's variable `name` turns thinking on and off: the values for on and off give
        different prompts. Where the template raises an error for the value that means on, the result is also True."""
        if name not in self._known:
            return False
        on, off = (self._text({name: value}) for value in VALUES[name])
        return on is None or on != off

    def _word_for(self, effort: str, *, off: bool, switched: bool) -> str | None:
        """Returns the value of reasoning_effort for this effort; None where the variable gets no value. switched: True
        where another variable already expresses the wish."""
        if not off:
            return None if effort == NONE else self._nearest(effort)
        if switched:
            return None
        closing = [word for word in OFF_WORDS if self._closed({EFFORT: word})]
        known = [word for word in OFF_WORDS[:4] if self._is_known(word)]
        return next(iter([*closing, *known]), None)

    def _nearest(self, effort: str) -> str:
        """Returns this word, or the nearest word that the template accepts; of two, the larger effort."""
        taken = [word for word in WORDS if self._text({EFFORT: word}) is not None]
        if self._prints_any():
            taken = list(COMMON_WORDS)
        if effort in taken or effort not in WORDS or not taken:
            return effort
        place = WORDS.index(effort)
        return min(taken, key=lambda word: (abs(WORDS.index(word) - place), -WORDS.index(word)))

    def _prints_any(self) -> bool:
        return _ODD in (self._text({EFFORT: _ODD}) or "")

    def _is_known(self, word: str) -> bool:
        """Returns True where the template treats this word differently from an unknown word."""
        text = self._text({EFFORT: word})
        return text is not None and not self._prints_any() and text != self._text({EFFORT: _ODD})

    def _closed(self, variables: Mapping[str, Any], system: str = "") -> bool:
        """Returns True where the prompt's end shows that the model does not think."""
        marks, text = self._form.thought, self._text(variables, system)
        return marks is not None and text is not None and marks.closed_by(text)

    def _text(self, variables: Mapping[str, Any], system: str = "") -> str | None:
        first = [{"role": "system", "content": system}] if system else []
        try:
            return self._template.written([*first, {"role": "user", "content": ASK}], variables=variables)
        except InvalidRequest:
            return None


def with_system(messages: Sequence[Mapping[str, Any]], text: str) -> list[Mapping[str, Any]]:
    """Returns the messages with a system message of this text in front; with an empty text, unchanged. If the template
    accepts only one system message, history/fit.py later joins all of them."""
    return [{"role": "system", "content": text}, *messages] if text else list(messages)
