"""A model's own chat template: turns messages into the text form that the model was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.exceptions import SecurityError

from twostroke.text.history.abilities import Abilities, tried
from twostroke.text.history.completed import OTHER_VALUES, OtherValues, completed
from twostroke.text.history.fit import LAST_RESORT, Fit
from twostroke.text.history.repair import Messages
from twostroke.text.special_tokens import read_special_tokens
from twostroke.text.templates.messages import normalized
from twostroke.text.templates.pictures import PictureMarks
from twostroke.text.templates.sandbox import RenderTimeout, Sandbox, TemplateComplaint, run_bounded
from twostroke.text.templates.template_files import read_response, read_sources
from twostroke.types.errors import CorruptModel, InvalidRequest
from twostroke.types.first_use.made_once import made_once
from twostroke.types.notes import Notes

MAX_OUTPUT_CHARACTERS = 8 * 1024 * 1024
RENDER_LIMIT_S = 5.0
_FAULTS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
_NO_ROLE, _WORD = "qzrole", "qzdevelops"
"""A role and a word that no template contains."""
_RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})


class TemplateRefusal(InvalidRequest):
    """Raised when the template does not accept these messages; it may accept them in another shape."""


class ChatTemplate:
    """A chat template of a model, compiled once. `render` may be called from several threads, but not from the thread
    of an event loop, because it can take a while."""

    def __init__(
        self,
        sources: Mapping[str, str],
        special_texts: Mapping[str, str],
        *,
        described: Any = None,
        render_limit_s: float = RENDER_LIMIT_S,
        max_output_characters: int = MAX_OUTPUT_CHARACTERS,
    ) -> None:
        """sources: maps the names of templates to their texts; either "default" is one of the names, or there is only
        one template. described: the checkpoint's own schema for parsing the model's answers (response_template or
        response_schema in tokenizer_config.json). Raises CorruptModel for broken syntax."""
        self.described = described
        sandbox = Sandbox()
        try:
            self._templates = {name: sandbox.from_string(source) for name, source in sources.items()}
            self._asked_for = {name: meta.find_undeclared_variables(sandbox.parse(s)) for name, s in sources.items()}
        except (jinja2.TemplateError, RecursionError, MemoryError) as error:
            raise CorruptModel("The model's chat template is broken.", why=f"{error}.") from error
        self._sources = dict(sources)
        self._special_texts = dict(special_texts)
        self._render_limit_s = render_limit_s
        self._max_output_characters = max_output_characters
        self._other_values: dict[str, OtherValues | None] = {}  # what each template needs, found at its first use
        self._fits = {name: Fit(partial(self._probe, name)) for name in self._templates}
        self._knowing: dict[str, bool] = {}  # whether a template knows developers, tested at the first use

    @classmethod
    def from_folder(cls, path: str | Path, own: Path | None = None) -> ChatTemplate | None:
        """Returns the template of a Hugging Face folder; None where the folder has none. own: a file that is used in
        place of the folder's template.

        Raises CorruptModel, ConfigError.
        """
        folder = Path(path)
        sources = read_sources(folder, own)
        if not sources:
            return None
        said = None if own is not None else read_response(folder)
        return cls(sources, read_special_tokens(folder).texts, described=said)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        each_text: Callable[[str], str] = str,
        notes: Notes | None = None,
        pictures: PictureMarks | None = None,
    ) -> str:
        """Returns the prompt's text, including special tokens. variables: values for names that the template itself
        asks for. notes: collects the changes that the messages needed. pictures: the marks of the images in the
        messages.

        each_text: returns the replacement of each string of the messages, tools and variables (quoting.py).

        Raises InvalidRequest for messages that are wrong or that the template refuses (with the template's own words).
        It also raises InvalidRequest for unknown variables, and where rendering takes more time or text than allowed.
        """
        name = "tool_use" if tools and "tool_use" in self._sources else self._default_name()
        extra = dict(variables or {})
        self._check_variables(name, extra)
        notes = Notes() if notes is None else notes
        made = self._roles(name, normalized(messages, notes, self._fits[name].joint))

        def text_of(conversation: Messages, offered: Sequence[Mapping[str, Any]] | None) -> str:
            given = {**self._values(name, offered), **extra, "documents": None}
            shown = _with_texts(conversation, each_text)
            if pictures is not None and self._fits[name].sees(pictures.written):
                shown = pictures.as_parts(shown, self._fits[name].joint)
            names = {key: _with_texts(value, each_text) for key, value in given.items()}
            opens = {"add_generation_prompt": add_generation_prompt}
            return self._rendered(name, {**self._special_texts, **names, **opens, "messages": shown})

        fitted = self._fits[name].fitted(made, notes)
        try:
            return text_of(fitted, tools)
        except TemplateRefusal as refusal:
            whole = completed(tools) if tools else None
            if whole:
                with suppress(InvalidRequest):
                    return text_of(fitted, whole)
            try:
                text = text_of(self._fits[name].plainest(made), whole)
            except InvalidRequest:
                raise refusal from None
        notes.add(LAST_RESORT)
        return text

    def written(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns the text that the template makes of these messages, without the repairs that `render` makes. Raises
        InvalidRequest."""
        name = "tool_use" if tools and "tool_use" in self._sources else self._default_name()
        shaped = self._fits[name].dressed([dict(message) for message in messages])
        given = {"messages": shaped, "documents": None, "add_generation_prompt": add_generation_prompt}
        values = {**self._special_texts, **dict(variables or {}), **given}
        try:
            return self._rendered(name, {**values, **self._values(name, tools)})
        except TemplateRefusal:
            if not tools:
                raise
        return self._rendered(name, {**values, **self._values(name, completed(tools))})

    def _values(self, name: str, tools: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
        """Returns values for the template's variables that hold the offered tools: `tools`, and any other variable from
        which this template reads them."""
        if name not in self._other_values:
            self._other_values[name] = self._values_needed(name)
        needed = self._other_values[name]
        return {"tools": list(tools) if tools else None, **(needed(tools) if needed else {})}

    def _values_needed(self, name: str) -> OtherValues | None:
        """Finds the additional variables that a template needs, such as a list of tools under another name. Returns the
        first function of OTHER_VALUES with which the template renders a short question. Returns None where the template
        needs no such variables, or fails with all of them."""
        asked = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True, "documents": None}
        for values in (None, *OTHER_VALUES):
            given = {"tools": None, **(values(None) if values else {})}
            try:
                if self._rendered(name, {**self._special_texts, **asked, **given}):
                    return values
            except TemplateRefusal:
                continue
            except InvalidRequest:  # the render takes too long or writes too much; with other values it would, too
                return None
        return None

    def _roles(self, name: str, messages: Messages) -> Messages:
        """Returns the messages; developer messages become system messages where the template does not know the role
        developer."""
        if not any(each["role"] == "developer" for each in messages) or self._knows_developers(name):
            return messages
        return [{**each, "role": "system"} if each["role"] == "developer" else each for each in messages]

    def _knows_developers(self, name: str) -> bool:
        """Returns True where the template treats the role developer in a way of its own. A template that copies the
        name of any role into the prompt does not count."""
        known = self._knowing.get(name)
        if known is None:
            developer, stranger = (self._with_role(name, role) for role in ("developer", _NO_ROLE))
            known = self._knowing[name] = _WORD in developer and stranger.replace(_NO_ROLE, "developer") != developer
        return known

    def _with_role(self, name: str, role: str) -> str:
        with suppress(InvalidRequest):
            return self._probe(name, [{"role": role, "content": _WORD}, {"role": "user", "content": "Hi"}])
        return ""

    def _probe(self, name: str, messages: Messages) -> str:
        given = {"messages": messages, "documents": None, "add_generation_prompt": True}
        return self._rendered(name, {**self._special_texts, **self._values(name, None), **given})

    def _rendered(self, name: str, names: dict[str, Any]) -> str:
        try:
            return run_bounded(lambda: self._join(self._templates[name], names), self._render_limit_s)
        except RenderTimeout as error:
            raise InvalidRequest(
                "The model's chat template did not finish.",
                param="messages",
                why=f"It may take {self._render_limit_s:g} s.",
                fix="Send fewer or shorter messages.",
            ) from error
        except SecurityError as error:
            raise InvalidRequest(f"The model's chat template was stopped: {error}.", param="messages") from error
        except TemplateComplaint as error:
            raise TemplateRefusal(f"The model's chat template says: {error}", param="messages") from error
        except (jinja2.TemplateError, *_FAULTS) as error:
            # The exception's text is not shown: exceptions of Python and Jinja can contain the values they saw, memory
            # addresses included.
            raise TemplateRefusal(
                "The model's chat template cannot render these messages.",
                param="messages",
                why="They have a shape that the template was not written for.",
            ) from error

    def joint(self, role: str) -> str:
        """Returns the text between two parts of a message of this role."""
        return self._fits[self._default_name()].joint(role)

    @made_once
    def abilities(self) -> Abilities:
        """Which parts of a conversation with tools (such as calls and results) the template writes into a prompt."""
        return tried(self.render)

    @property
    def variables(self) -> frozenset[str]:
        """The names of variables of the default template to which a request may give values."""
        return frozenset(self._asked_for[self._default_name()] - _RESERVED - set(self._special_texts))

    @property
    def source(self) -> str:
        """The text of the template that renders conversations without tools."""
        return self._sources[self._default_name()]

    def _default_name(self) -> str:
        return "default" if "default" in self._sources else next(iter(self._sources))

    def _check_variables(self, name: str, variables: Mapping[str, Any]) -> None:
        allowed = self._asked_for[name] - _RESERVED - set(self._special_texts)
        for variable in variables:
            if variable not in allowed:
                known = ", ".join(sorted(allowed)) or "none"
                raise InvalidRequest(
                    f"The model's chat template has no variable {variable!r}.",
                    param="chat_template_kwargs",
                    fix=f"It knows: {known}.",
                )

    def _join(self, template: jinja2.Template, names: dict[str, Any]) -> str:
        pieces, length = [], 0
        for piece in template.generate(names):
            length += len(piece)
            if length > self._max_output_characters:
                raise SecurityError(f"it writes more than {self._max_output_characters:,} characters")
            pieces.append(piece)
        return "".join(pieces)


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Returns a copy of JSON-like data with every string changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_with_texts(key, change): _with_texts(item, change) for key, item in value.items()}
    return [_with_texts(item, change) for item in value] if isinstance(value, (list, tuple)) else value


def required(template: ChatTemplate | None, model_name: str) -> ChatTemplate:
    """Returns the template. Raises InvalidRequest, with advice, where there is no template."""
    if template is None:
        raise InvalidRequest(
            f"The model {model_name} has no chat template.",
            param="messages",
            why="It is a base model: it continues text.",
            fix="Use completions (generate) with a plain prompt.",
        )
    return template
