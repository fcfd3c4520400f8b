"""The fields that ask for a grammar, in the spellings that clients send, made into one Grammar.

OpenAI's field is response_format (text, json_object, json_schema), also with the schema next to json_object as
llama.cpp's clients send it. vLLM's fields are structured_outputs (json, json_object, regex, choice, grammar) and the
older guided_json, guided_regex, guided_choice, guided_grammar. llama.cpp's are grammar and json_schema; SGLang's are
regex, ebnf and json_schema. A grammar is Lark or GBNF, and ebnf is GBNF.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from msgspec import Struct, structs

from twostroke.text.grammar.check import not_held
from twostroke.text.talk.format import Format
from twostroke.text.talk.hold.before import around_answer
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar, ThoughtFirst

_T = TypeVar("_T")


class GrammarFields(Protocol):
    """The fields of a request that ask for a grammar of the answer."""

    response_format: Any
    grammar: Any
    json_schema: Any
    regex: Any
    ebnf: Any
    structured_outputs: Any
    guided_json: Any
    guided_regex: Any
    guided_choice: Any
    guided_grammar: Any


class AskedGrammar(Struct, frozen=True):
    """The grammar that a request asks for. field: the client's name of the field that asks for it. not_held: describes
    the parts of the request that a grammar cannot enforce."""

    grammar: Grammar | None = None
    field: str = "grammar"
    not_held: tuple[str, ...] = ()


def grammar_of(request: GrammarFields) -> AskedGrammar:
    """Returns the grammar that a request asks for. Raises InvalidRequest naming the field."""
    asked = [(name, grammar) for name, make in _asked(request) if (grammar := _named(name, make)) is not None]
    if len(asked) > 1:
        raise InvalidRequest(
            f"{asked[0][0]} and {asked[1][0]} both ask for a form of the answer.", param=asked[1][0], fix="Send one."
        )
    if not asked:
        return AskedGrammar()
    name, grammar = asked[0]
    return AskedGrammar(grammar, name, _named(name, lambda: not_held(grammar)))


def after_thought(
    asked: AskedGrammar, form: Format, rendered: str, special_id: Callable[[str], int | None]
) -> AskedGrammar:
    """Returns the grammar extended by the text that the model writes around its answer: its thought, or the marks of
    its format. rendered: the prompt, which may have opened a thought already. A prompt that has closed it keeps the
    model from thinking."""
    if asked.grammar is None:
        return asked
    around, marks = around_answer(form, special_id, rendered), form.thought
    if around:
        return structs.replace(asked, grammar=replace(asked.grammar, thought=ThoughtFirst("", "", around=around)))
    if marks is None or marks.closed_by(rendered):
        return asked
    opening, closing = marks.opening.strip(), marks.closing.strip()
    begun = marks.opened_by(rendered)
    thought = ThoughtFirst(opening, closing, begun, special_id(opening), special_id(closing))
    return structs.replace(asked, grammar=replace(asked.grammar, thought=thought))


def response_format_grammar(value: Any) -> Grammar | None:
    """Returns the grammar of OpenAI's response_format; None for plain text. Raises InvalidRequest with param "grammar",
    which a caller replaces by the client's name of the field."""
    if not isinstance(value, dict):
        raise _wrong("it is no object")
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        schema = value.get("schema")
        return Grammar.json_object() if schema is None else schema_grammar(schema)
    if kind == "json_schema":
        named = value.get("json_schema", value)  # without the wrapper in Responses and llama.cpp
        if not isinstance(named, dict) or named.get("schema") is None:
            raise _wrong("json_schema is no object with a schema")
        return schema_grammar(named["schema"])
    raise _wrong(f"its type is {str(kind)[:60]!r}", "Use text, json_object or json_schema.")


def schema_grammar(schema: Any) -> Grammar:
    """Returns the grammar of a JSON schema as clients send it: an object, a boolean, or text. Raises InvalidRequest
    with param "grammar"."""
    if not isinstance(schema, (dict, bool, str)):
        raise _wrong("the schema is no object")
    return Grammar.json_schema(schema)


def _asked(request: GrammarFields) -> Iterator[tuple[str, Callable[[], Grammar | None]]]:
    for name, read in (
        ("response_format", response_format_grammar),
        ("structured_outputs", _structured_outputs),
        ("guided_json", schema_grammar),
        ("guided_regex", _regex),
        ("guided_choice", _choice),
        ("guided_grammar", _lark),
        ("grammar", _lark),
        ("json_schema", schema_grammar),
        ("regex", _regex),
        ("ebnf", _lark),
    ):
        value = getattr(request, name)
        if value is not None and not (value == "" and name in _EMPTY_IS_NONE):
            yield name, _bound(read, value)


_EMPTY_IS_NONE = ("grammar", "json_schema", "regex", "ebnf")
"""The fields of clients that send an empty text when they want no form."""


def _bound(read: Callable[[Any], Grammar | None], value: Any) -> Callable[[], Grammar | None]:
    return lambda: read(value)


def _named(name: str, make: Callable[[], _T]) -> _T:
    try:
        return make()
    except InvalidRequest as error:
        error.param = name
        error.what = f"{name}: {error.what}"
        raise


def _structured_outputs(value: Any) -> Grammar | None:
    if not isinstance(value, dict):
        raise _wrong("it is no object")
    readers: dict[str, Callable[[Any], Grammar | None]] = {
        "json": schema_grammar,
        "json_object": lambda asked: Grammar.json_object() if asked is True else None,
        "regex": _regex,
        "choice": _choice,
        "grammar": _lark,
    }
    given = {name: part for name, part in value.items() if part is not None and part is not False}
    unknown = [name for name in given if name not in readers]
    if unknown:
        raise _wrong(f"{unknown[0][:60]!r} is not supported", "Use one of " + ", ".join(readers) + ".")
    if len(given) > 1:
        raise _wrong(f"it holds {len(given)} forms", "Send one.")
    return next((readers[name](part) for name, part in given.items()), None)


def _regex(value: Any) -> Grammar:
    return Grammar.regex(_text(value))


def _lark(value: Any) -> Grammar:
    return Grammar.lark(_text(value))


def _choice(value: Any) -> Grammar:
    if not isinstance(value, list):
        raise _wrong("the choices are no list")
    return Grammar.choice(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong("it is no text")
    return value


def _wrong(why: str, fix: str = "") -> InvalidRequest:
    return InvalidRequest("the form of the answer cannot be read.", param="grammar", why=f"{why}.", fix=fix)
