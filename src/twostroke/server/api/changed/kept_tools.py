"""Chooses the tools of a request that a model can be offered: functions, and tools that take a text. The others are
left out.

Agents list tools that their provider would run (web_search, image_generation, mcp ...) next to their own functions. A
model of this server cannot use such tools: it does not see them, and the answer's header names them. A request is
refused only when it forces the model to use one of them.

Some clients write the tools of one API into the requests of another. Cursor sends Responses' flat functions, or
Anthropic's tools, to chat completions. Their meaning is clear, so every API reads all three forms, for tools and for
tool choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from twostroke.text.grammar.client.one_pattern import one_pattern
from twostroke.text.grammar.client.rules import NotRead
from twostroke.text.history.calls import TEXT_ARGUMENT
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import MAX_REGEX_BYTES
from twostroke.types.notes import Notes, named

MOST_PATTERN_BYTES = 8 * 1024
"""The longest regular expression that is made from a grammar."""


class FunctionSpec(msgspec.Struct, kw_only=True):
    """A function that the model may call. parameters: a JSON schema of its arguments. strict: True when the arguments
    must fit the schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomSpec(msgspec.Struct, kw_only=True):
    """A custom tool, whose calls are a text in place of JSON. format: {"type": "text"}, or a grammar of the text."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class AskedTool(msgspec.Struct, kw_only=True):
    """A tool of any kind, in the form of any API. Chat completions puts the fields of a tool into `function` or
    `custom`. Responses and Anthropic put the same fields into the tool itself, and Anthropic calls the parameters
    `input_schema`.

    name: the tool's name. A hosted tool, such as web search, may have a name, too.
    """

    type: str = "function"
    function: FunctionSpec | None = None
    custom: CustomSpec | None = None
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    format: Any = None


class Tool(msgspec.Struct, kw_only=True):
    """A tool of the request, as a function that the model may call. takes_text: True for a custom tool: its one
    argument is a text, and the client gets its calls as text. pattern: a regular expression that this text must match;
    None for any text."""

    function: FunctionSpec
    takes_text: bool = False
    pattern: str | None = None


class KeptTools(msgspec.Struct, kw_only=True):
    """The result of `kept_tools`. tools: the tools of the request that the model may be offered. choice: the request's
    tool_choice, in the form of chat completions."""

    tools: list[Tool]
    choice: str | dict[str, Any] | None


def kept_tools(asked: Sequence[AskedTool], choice: str | dict[str, Any] | None, notes: Notes) -> KeptTools:
    """Returns the tools that the model may be offered. Raises InvalidRequest for a function without its fields, and for
    a choice of a tool that was left out."""
    tools: dict[str, Tool] = {}
    left_out: list[str] = []
    for place, tool in enumerate(asked):
        made = _kept(tool, f"tools[{place}]", notes)
        if made is not None:
            _add(tools, made, notes)
            continue
        left_out.append(tool.type)
        name = "" if tool.name in (None, tool.type) else f"{named(tool.name)} "
        notes.add(f"the tool {name}of the type {named(tool.type)} was left out: this server cannot run it")
    return _chosen(list(tools.values()), choice, left_out)


def _add(tools: dict[str, Tool], made: Tool, notes: Notes) -> None:
    """Add a tool. A tool that is listed twice is added once: some agents read their MCP servers twice. Raises
    InvalidRequest for two different tools with one name."""
    name = made.function.name
    before = tools.setdefault(name, made)
    if before is made:
        return
    if before != made:
        raise InvalidRequest(
            f"Two different tools have the name {named(name)!r}.", param="tools", fix="Give each tool its own name."
        )
    notes.add(f"the tool {named(name)} was listed more than once")


def text_tool(name: str, description: str | None, form: dict[str, Any] | None, notes: Notes) -> Tool:
    """Returns a tool that takes a text, as a function with one argument. form: the grammar of the text, which the model
    is told.

    Once a call begins, its text is made to fit the grammar, in whatever notation the model writes calls. For this, a
    grammar of Lark is made into one regular expression. When this is impossible, the grammar is only told to the model,
    and a note explains why.
    """
    told = [description or "", "Write the whole text as the one argument."]
    wanted = form.get("grammar") if form and isinstance(form.get("grammar"), dict) else form
    definition = wanted.get("definition") if wanted else None
    pattern = None
    if isinstance(definition, str):
        syntax = wanted.get("syntax") if wanted else ""
        told.append(f"The text must fit this grammar ({named(syntax)}):\n{definition}")
        pattern = _pattern(name, definition, syntax, notes)
    whole = "\n".join(filter(None, told))
    spec = FunctionSpec(name=name, description=whole, parameters=text_schema({}), strict=pattern is not None)
    return Tool(function=spec, takes_text=True, pattern=pattern)


def text_schema(bounds: Mapping[str, str]) -> dict[str, Any]:
    """Returns the schema of the arguments of a custom tool, which have one text. bounds: the keywords of JSON Schema
    that the text must fit, such as `pattern`."""
    return {
        "type": "object",
        "properties": {TEXT_ARGUMENT: {"type": "string", **bounds}},
        "required": [TEXT_ARGUMENT],
        "additionalProperties": False,
    }


def _pattern(name: str, definition: str, syntax: Any, notes: Notes) -> str | None:
    """Returns a regular expression for the text of a custom tool, made from the tool's grammar. Returns None, and adds
    a note, where a grammar of this kind cannot be enforced."""
    if syntax == "regex":
        size_bytes = len(definition.encode(errors="surrogatepass"))
        if size_bytes > MAX_REGEX_BYTES:
            raise InvalidRequest(
                f"The grammar of the tool {named(name)} is too long.",
                why=f"It has {size_bytes:,} bytes; at most {MAX_REGEX_BYTES:,} are read.",
                param="tools",
            )
        return definition
    why = f"{named(syntax)} is no syntax that is read"
    if syntax == "lark":
        try:
            made = one_pattern(definition, MOST_PATTERN_BYTES)
        except NotRead as error:
            why = str(error)
        else:
            if made.depth is not None:
                deep = f"a rule may occur at most {made.depth + 1} times within itself"
                notes.add(f"the grammar of the tool {named(name)} is enforced with a bound: {deep}")
            return made.pattern
    notes.add(f"the grammar of the tool {named(name)} is told to the model and not enforced: {why}")
    return None


def _kept(tool: AskedTool, where: str, notes: Notes) -> Tool | None:
    if tool.type == "function" or (tool.type == "custom" and tool.input_schema is not None):
        return Tool(function=tool.function or _flat_function(tool, where))
    if tool.type == "custom":
        own = tool.custom or _flat_custom(tool, where)
        return text_tool(own.name, own.description, own.format, notes)
    return None


def _flat_function(tool: AskedTool, where: str) -> FunctionSpec:
    parameters = tool.input_schema if tool.parameters is None else tool.parameters
    return FunctionSpec(
        name=_name_of(tool, where), description=tool.description, parameters=parameters, strict=tool.strict
    )


def _flat_custom(tool: AskedTool, where: str) -> CustomSpec:
    form = tool.format if isinstance(tool.format, dict) else None
    return CustomSpec(name=_name_of(tool, where), description=tool.description, format=form)


def _name_of(tool: AskedTool, where: str) -> str:
    if tool.name is None:
        raise InvalidRequest(f"{where} is no {tool.type} with a name.", param=where, fix="Send its name.")
    return tool.name


def _chosen(tools: list[Tool], choice: str | dict[str, Any] | None, left_out: list[str]) -> KeptTools:
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if isinstance(kind, str) and kind in _WORDS:
        if _WORDS[kind] == "required" and not tools and left_out:
            raise _cannot(left_out[0])
        return KeptTools(tools=tools, choice=_WORDS[kind])
    if not isinstance(choice, dict):
        return KeptTools(tools=tools, choice=choice)
    if kind == "allowed_tools":
        return _allowed(tools, choice, left_out)
    if kind in ("function", "custom", "tool"):
        return KeptTools(tools=tools, choice={"type": "function", "function": {"name": _name_in(choice)}})
    if kind in left_out:
        raise _cannot(str(kind))
    return KeptTools(tools=tools, choice=choice)


_WORDS = {"none": "none", "auto": "auto", "required": "required", "any": "required"}
"""The choices without a name, as a word or as the `type` of an object. Anthropic and Mistral say `any`."""


def _allowed(tools: list[Tool], choice: dict[str, Any], left_out: list[str]) -> KeptTools:
    """Returns the tools that a tool_choice of the type allowed_tools names."""
    inner = choice.get("allowed_tools")
    inner = inner if isinstance(inner, dict) else choice
    mode, listed = inner.get("mode") or "auto", inner.get("tools")
    if mode not in ("auto", "required") or not isinstance(listed, list):
        raise InvalidRequest(
            "tool_choice has no valid list of allowed tools.",
            param="tool_choice",
            fix="Send `mode` (auto or required), and `tools` (a list).",
        )
    listed = [each for each in listed if isinstance(each, dict)]
    names, known = {_name_in(each) for each in listed}, {tool.function.name for tool in tools}
    for each in listed:
        if each.get("type", "function") in ("function", "custom") and _name_in(each) not in known:
            raise InvalidRequest(
                f"tool_choice allows {named(_name_in(each))!r}, which is none of the tools.",
                param="tool_choice",
                fix="Name tools of the request.",
            )
    return _chosen([tool for tool in tools if tool.function.name in names], mode, left_out)


def _name_in(tool: dict[str, Any]) -> str | None:
    """Returns the name of the tool in a tool_choice, in the form of any API; None when there is none."""
    inner = tool.get(str(tool.get("type")))
    name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
    return name if isinstance(name, str) else None


def _cannot(kind: str) -> InvalidRequest:
    return InvalidRequest(
        f"tool_choice forces a tool of the type {named(kind)!r}, which this server cannot run.",
        param="tool_choice",
        fix="Use auto, or name a function.",
        code="unsupported_value",
    )
