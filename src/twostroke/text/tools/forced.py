"""Grammars that hold a model to its tools' schemas, in its own style of writing calls.

Knows: the styles' texts, llguidance's Lark.
Must not know: requests, how a grammar is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from twostroke.text.grammar.guard_child import FORM
from twostroke.text.tools import deepseek, hermes, mistral
from twostroke.text.tools.styles import HERMES, ToolStyle
from twostroke.types.grammar import Grammar

SpecialId = Callable[[str], int | None]
"""The id of a text that is one special token of the vocabulary, None for text that is written as text."""
_ANYTHING = r"/(.|\n)*/"


class _Form(Struct, frozen=True):
    """mark lead (opening name middle arguments closing) between (opening ...) end; each: the mark stands before every
    call, not once."""

    mark: str
    lead: str
    opening: str
    middle: str
    closing: str
    between: str
    end: str
    each: bool = False


_FORMS = {
    "hermes": _Form(hermes.OPEN, "", '\n{"name": "', '", "arguments": ', "}\n" + hermes.CLOSE, "\n", "", each=True),
    "llama3": _Form("", "", '{"name": "', '", "parameters": ', "}", "; ", ""),
    "mistral": _Form(mistral.OPEN, "[", '{"name": "', '", "arguments": ', "}", ", ", "]"),
    "deepseek": _Form(
        deepseek.BEGIN_CALLS,
        "",
        deepseek.BEGIN_CALL + deepseek.FENCED_KIND + deepseek.SEPARATOR,
        "\n```json\n",
        "\n```" + deepseek.END_CALL,
        "\n",
        deepseek.END_CALLS,
    ),
}


def held_style(style: ToolStyle) -> ToolStyle:
    """The style that a model is held to: its own, or Hermes where its own has no room for JSON."""
    return style if style.name in _FORMS else HERMES


def forced_calls(style: ToolStyle, schemas: Mapping[str, Any], special_id: SpecialId, *, parallel: bool) -> Grammar:
    """Calls and nothing else. schemas: tool name -> JSON schema of its arguments, as check.checked_schema gives it.

    parallel: one call or more.
    """
    form = _FORMS[style.name]
    return _grammar(style, schemas, special_id, [_calls(form, style, special_id, form.mark, parallel)], [])


def strict_calls(style: ToolStyle, schemas: Mapping[str, Any], special_id: SpecialId, *, parallel: bool) -> Grammar:
    """Free text, in which calls, once their mark has begun, must fit their schemas."""
    form = _FORMS[style.name]
    if not form.mark:  # what begins with a brace is a call
        first = [_calls(form, style, special_id, "", parallel), "TEXT"]
        return _grammar(style, schemas, special_id, first, [r"TEXT: /[^{](.|\n)*/"])
    if special_id(form.mark) is not None:
        first = [f"TEXT {_calls(form, style, special_id, form.mark, parallel)}", "TEXT"]
        return _grammar(style, schemas, special_id, first, [f"TEXT: {_ANYTHING}"])
    first = [f"marked {_calls(form, style, special_id, '', parallel)}", "TEXT"]
    marked = f"marked[lazy]: TEXT {_quoted(form.mark)}"  # ends with the mark's first occurrence
    return _grammar(style, schemas, special_id, first, [marked, f"TEXT: {_ANYTHING}"])


def _calls(form: _Form, style: ToolStyle, special_id: SpecialId, mark: str, parallel: bool) -> str:
    """The rule's body; `mark` is empty where it is read elsewhere."""
    again = form.between + (form.mark if form.each else "")
    more = f"({_literals(again, style, special_id)} call)*" if parallel else ""
    return f"{_literals(mark + form.lead, style, special_id)} call {more} {_literals(form.end, style, special_id)}"


def _grammar(
    style: ToolStyle, schemas: Mapping[str, Any], special_id: SpecialId, first: list[str], others: list[str]
) -> Grammar:
    form = _FORMS[style.name]
    rules = [f"start: {' | '.join(first)}", *others]
    rules.append("call: " + " | ".join(f"call_{place}" for place in range(len(schemas))))
    for place, (name, schema) in enumerate(schemas.items()):
        opening = _literals(form.opening + name + form.middle, style, special_id)
        rules.append(f"call_{place}: {opening} arguments_{place} {_literals(form.closing, style, special_id)}")
        rules.append(f"arguments_{place}: %json {json.dumps({**schema, 'x-guidance': FORM})}")
    return Grammar.lark("\n".join(rules) + "\n")


def _literals(text: str, style: ToolStyle, special_id: SpecialId) -> str:
    """Text as Lark strings, with marks that are special tokens as tokens."""
    for mark in style.marks:
        token_id = special_id(mark)
        if token_id is not None and mark in text:
            before, _, after = text.partition(mark)
            parts = (_literals(before, style, special_id), f"<[{token_id}]>", _literals(after, style, special_id))
            return " ".join(part for part in parts if part)
    return _quoted(text) if text else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
