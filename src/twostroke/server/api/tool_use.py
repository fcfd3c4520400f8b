"""Which tools a chat request lets the model call, and the grammar that makes the model's calls fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from twostroke.server.api.changed.kept_tools import Tool, text_schema
from twostroke.server.api.schema import CheckedChat
from twostroke.text.grammar.check import checked_in_words
from twostroke.text.grammar.schema import adapted_in_words
from twostroke.text.talk.format import Format
from twostroke.text.talk.hold.calls import forced_calls, strict_calls
from twostroke.text.talk.hold.lark import WHOLE, SpecialId
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import MAX_LARK_BYTES, MAX_SCHEMA_BYTES, Grammar
from twostroke.types.notes import Notes, named

MOST_HELD_BYTES = 2 * MAX_LARK_BYTES
"""The most bytes that the schemas of a request's tools may have together. The grammar that is made of them is more than
half as long, and may have at most MAX_LARK_BYTES. So longer schemas are refused before the grammar is made."""
ANY_ARGUMENTS: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of one chat request. offered: the tools as the template reads them; None for none. schemas: for each
    tool that may be called, by name, the schema of its arguments.

    held: those schemas that a grammar enforces in the answer; None for none. forced: True when the answer must be tool
    calls and nothing else. single: True when the grammar allows only one tool call. one: True when the client gets only
    the first call, however many the model writes. texts: the names of custom tools, whose argument is a plain text and
    is sent as text.
    """

    offered: tuple[dict[str, Any], ...] | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, Any] | None = None
    forced: bool = False
    one: bool = False
    single: bool = False
    texts: frozenset[str] = frozenset()

    def grammar(self, form: Format, special_id: SpecialId, prompt_end: str) -> Grammar | None:
        """Returns the grammar that the answer must fit in this format; None when there is none. prompt_end: the end of
        the prompt, which may have opened the model's reasoning."""
        if self.held is None:
            return None
        if self.forced:
            return forced_calls(form, self.held, special_id, parallel=not self.single, prompt_end=prompt_end)
        return strict_calls(form, self.held, special_id, parallel=not self.single)


def tool_use(checked: CheckedChat) -> ToolUse:
    """Returns the tools that a chat request allows the model to call. Raises InvalidRequest for an impossible
    tool_choice."""
    request, tools = checked.request, checked.tools
    choice = _choice(request.tool_choice, tools)
    if not tools or choice == "none":
        return ToolUse()
    parallel = request.parallel_tool_calls is not False
    chosen = tools if choice in ("auto", "required") else [t for t in tools if t.function.name == choice]
    forced = choice != "auto"
    held = None
    if forced or any(tool.function.strict for tool in tools):
        held = _schemas(chosen, checked.notes, all_held=forced)
    offered = tuple(msgspec.to_builtins(_described(tool)) for tool in tools)
    schemas = {tool.function.name: tool.function.parameters for tool in chosen}
    texts = frozenset(tool.function.name for tool in tools if tool.takes_text)
    single = not parallel or choice not in ("auto", "required")
    return ToolUse(offered, schemas, held, forced=forced, one=not parallel, single=single, texts=texts)


def special_ids_of(tokenizer: Tokenizer) -> SpecialId:
    """Returns a function that maps a text to the id of the special token with this text, or None."""

    def find(text: str) -> int | None:
        found = tokenizer.id_of(text)
        return found if found in tokenizer.special_ids else None

    return find


def _choice(asked: str | dict[str, Any] | None, tools: Sequence[Tool]) -> str:
    """Returns none, auto, required, or a tool's name (no tool may have one of these words as its name)."""
    if asked is None:
        return "auto"
    if isinstance(asked, str):
        if asked not in ("none", "auto", "required"):
            raise _wrong(f"tool_choice is {asked[:60]!r}.", "Use none, auto, required, or a function.")
        if asked == "required" and not tools:
            raise _wrong("tool_choice is required and there are no tools.", "Send tools.")
        return asked
    function = asked.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if asked.get("type") != "function" or not isinstance(name, str):
        raise _wrong("tool_choice names no function.", 'Send {"type": "function", "function": {"name": ...}}.')
    if name not in {tool.function.name for tool in tools}:
        raise _wrong(f"tool_choice names {name[:60]!r}, which is none of the tools.", "Name one of the tools.")
    return name


def _schemas(tools: Sequence[Tool], notes: Notes, *, all_held: bool) -> dict[str, Any]:
    """Returns the schema of each tool's arguments, by the tool's name.

    When not all tools must fit their schemas, the arguments of a tool that is not strict may be anything.
    """
    made: dict[str, Any] = {}
    left_bytes = MOST_HELD_BYTES
    for tool in tools:
        if not (all_held or tool.function.strict):
            made[tool.function.name] = ANY_ARGUMENTS
            continue
        made[tool.function.name], size_bytes = _held(tool, notes)
        left_bytes -= size_bytes
        if left_bytes < 0:
            raise InvalidRequest(
                f"The parameters of the tools are more than {MOST_HELD_BYTES:,} bytes when they are written out.",
                why="This is the most that can be enforced.",
                param="tools",
                fix="Leave strict out, send tool_choice auto, or send fewer tools.",
            )
    return made


def _held(tool: Tool, notes: Notes) -> tuple[Any, int]:
    """Returns the schema of a tool's arguments that the grammar enforces, and its size in bytes as JSON. Raises
    InvalidRequest that names the tool.

    Only arguments that the schema names are allowed. If the schema names none, the tool has no arguments.
    """
    schema = tool.function.parameters or ANY_ARGUMENTS
    read = checked_in_words
    size_bytes = len(msgspec.json.encode(schema))
    if size_bytes > MAX_SCHEMA_BYTES:
        raise InvalidRequest(
            f"The parameters of the tool {tool.function.name!r} have {size_bytes:,} bytes.",
            why=f"At most {MAX_SCHEMA_BYTES:,} can be enforced.",
            param="tools",
            fix="Leave strict out, and send tool_choice auto.",
        )
    if tool.pattern is not None:
        schema, read = text_schema({"pattern": tool.pattern.join(WHOLE)}), adapted_in_words
    if schema.get("type") == "object" and not any(name in schema for name in _SAYS_MORE):
        schema = {**schema, "properties": {}}
    try:
        found = read(schema)
    except InvalidRequest as error:
        error.param = "tools"
        error.what = f"The parameters of the tool {tool.function.name!r}: {error.what}"
        raise
    for words in found.not_held:
        notes.add(f"tool {named(tool.function.name)}: {words}")
    is_as_sent = found.schema == tool.function.parameters
    return found.schema, size_bytes if is_as_sent else len(msgspec.json.encode(found.schema))


_SAYS_MORE = (
    "properties additionalProperties patternProperties propertyNames unevaluatedProperties allOf anyOf oneOf $ref"
).split()


def _described(tool: Tool) -> dict[str, Any]:
    """Returns the tool as templates expect it, with exactly the keys that they know."""
    function = tool.function
    described = {"name": function.name, "description": function.description or ""}
    return {"type": "function", "function": {**described, "parameters": function.parameters or ANY_ARGUMENTS}}


def _wrong(what: str, fix: str) -> InvalidRequest:
    return InvalidRequest(what, param="tool_choice", fix=fix)
