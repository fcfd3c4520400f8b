"""Enforced calls: any text that the grammar of a format allows is read as calls that fit their schemas."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from msgspec import structs

from tests.text.grammar.test_grammar import allowed
from tests.text.kinds import make
from tests.text.talk.reading import TOOLS, read, valued, written
from twostroke.server.api.changed.kept_tools import text_schema, text_tool
from twostroke.server.api.fields.grammar import AskedGrammar, after_thought
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.talk.hold.calls import MOST_CALLS, forced_calls, strict_calls
from twostroke.text.talk.hold.lark import WHOLE
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.grammar import Grammar
from twostroke.types.notes import Notes

MOST_TOKENS = 900
STRICT: dict[str, Any] = {
    "shelf": {**TOOLS["shelf"], "required": ["title", "copies"], "additionalProperties": False},
    "hours": {
        "type": "object",
        "properties": {"day": {"enum": ["Mon", "Tue"]}, "open": {"type": "boolean"}},
        "required": ["day"],
        "additionalProperties": False,
    },
    "bell": {"type": "object", "properties": {}, "additionalProperties": False},
    "sort": {
        "type": "object",
        "properties": {
            "by": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
            "limits": {
                "type": "object",
                "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}},
                "required": ["low"],
                "additionalProperties": False,
            },
        },
        "required": ["by", "limits"],
        "additionalProperties": False,
    },
}


def special(text: str) -> int | None:
    """The id of a text that is a special token of the tests' vocabulary."""
    tokenizer = make("byte_level")
    found = tokenizer.id_of(text)
    return found if found in tokenizer.special_ids else None


CALLING = [pytest.param(form, id=name) for name, form in FORMATS.items() if form.calls]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make("byte_level")


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    yield made
    made.close()


def walked(grammar: Grammar, compiler: GrammarCompiler, tokenizer: Tokenizer, seed: int) -> str | None:
    """A random text of the grammar; None where it did not end. Marks, brackets and quotes are often chosen."""
    closing = {i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) in (b'"', b"}", b"]", b"<", b"\n")}
    machine, dice, tokens = compiler.compile(grammar), random.Random(seed), list[int]()
    while len(tokens) < MOST_TOKENS:
        may = allowed(machine)
        if may & tokenizer.end_token_ids:
            return b"".join(map(tokenizer.token_bytes, tokens)).decode("utf-8", "replace")
        choice = may & closing if may & closing and dice.random() < 0.4 else may
        tokens.append(dice.choice(sorted(choice)))
        machine.feed(tokens[-1])
    return None


def fitting(form: Format, text: str, prompt: str = "") -> int:
    """How many calls the text has. Each must fit its schema, and only a thought may be around them."""
    found = valued(read(form, [text], prompt, STRICT))
    assert not found.content.strip(), text
    for name, arguments, _ in found.calls:
        assert jsonschema_rs.is_valid(STRICT[name], arguments), (name, arguments, text)
    return len(found.calls)


@pytest.mark.parametrize("form", CALLING)
def test_forced_calls_are_calls_that_fit(form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    for name, schema in STRICT.items():
        grammar = forced_calls(form, {name: schema}, special, parallel=False, prompt_end=closed(form))
        for seed in range(2):
            text = walked(grammar, compiler, tokenizer, seed)
            assert text is None or fitting(form, text, closed(form)) == 1, text


@pytest.mark.parametrize("form", CALLING)
def test_all_tools_make_one_grammar(form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = forced_calls(form, STRICT, special, parallel=True, prompt_end=closed(form))
    made = [text for seed in range(6) if (text := walked(grammar, compiler, tokenizer, seed)) is not None]
    assert made and all(fitting(form, text, closed(form)) for text in made)


@pytest.mark.parametrize("form", CALLING)
def test_what_a_format_writes_its_grammar_lets_through(
    form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    text = written(form, [("shelf", {"title": "Emma", "copies": 2})])
    for grammar in (
        forced_calls(form, STRICT, special, parallel=True),
        strict_calls(form, STRICT, special, parallel=True),
    ):
        assert passes(grammar, text.lstrip("\n") if form.messages else text, compiler, tokenizer), text


@pytest.mark.parametrize("form", CALLING)
def test_a_turn_that_is_held_ends(form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    for way in (forced_calls, strict_calls):
        grammar = way(form, {"hours": STRICT["hours"]}, special, parallel=True)
        for count in (MOST_CALLS, MOST_CALLS + 1):
            text = written(form, [("hours", {"day": "Mon"})] * count)
            fits = count <= (1 if form.messages else MOST_CALLS)
            assert passes(grammar, text.lstrip("\n") if form.messages else text, compiler, tokenizer) == fits, count


REGEX = r"(add|sub) [0-9]{1,3}/x( \"é\n\\)?"
LARK = """start: VERB " " number "/x" [tail]  // the same texts
VERB: "add" | "sub"
number: DIGIT~1..3
tail: " \\"\u00e9\\n\\\\"
%import common.DIGIT"""


@pytest.mark.parametrize(("syntax", "definition"), [("regex", REGEX), ("lark", LARK)])
@pytest.mark.parametrize("form", CALLING)
def test_a_text_tool_is_held_to_its_grammar(
    form: Format, syntax: str, definition: str, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    tool = text_tool("sum", None, {"type": "grammar", "syntax": syntax, "definition": definition}, notes := Notes())
    assert not notes.texts and tool.function.strict and tool.pattern is not None
    schemas = {"sum": text_schema({"pattern": tool.pattern.join(WHOLE)})}
    for grammar in (
        forced_calls(form, schemas, special, parallel=False, prompt_end=closed(form)),
        strict_calls(form, schemas, special, parallel=False),
    ):
        for given in ("add 12/x", 'sub 1/x "é\n\\', "add twelve/x", "add 12/x\n"):
            text = written(form, [("sum", {"input": given})])
            text = text.lstrip("\n") if form.messages else text
            assert passes(grammar, text, compiler, tokenizer) is bool(re.fullmatch(REGEX, given)), text
    forced = forced_calls(form, schemas, special, parallel=False, prompt_end=closed(form))
    for seed in range(2):
        made = walked(forced, compiler, tokenizer, seed)
        if made is not None:
            ((_, arguments, _),) = valued(read(form, [made], closed(form), schemas)).calls
            assert re.fullmatch(REGEX, arguments["input"]), made


@pytest.mark.parametrize("form", CALLING)
def test_a_text_ends_where_its_pattern_could_go_on(
    form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    """A pattern of any text ends at the first end of its notation, also where that end has a token in its middle."""
    schemas = {"sum": text_schema({"pattern": r"[*]{3}(.|\n)*".join(WHOLE)})}
    text = written(form, [("sum", {"input": "*** a < b\n"})])
    text = text.lstrip("\n") if form.messages else text
    for middle in ("", "DSML"):
        marks = {"｜DSML｜": 3} if middle else {}
        forced = forced_calls(form, schemas, lambda mark, marks=marks: marks.get(mark), parallel=False)
        if not marks:
            assert passes(forced, text, compiler, tokenizer), text
        elif "｜DSML｜" in text:
            assert re.search(r"\(\.\|\\n\)\*\)<\\//\n", forced.text), forced.text


THINKING = [form for form in FORMATS.values() if form.thought and form.calls]


@pytest.mark.parametrize("form", THINKING, ids=lambda form: form.name)
def test_a_held_answer_may_think_first(form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    marks = form.thought
    assert marks is not None
    call = written(form, [("bell", {})]).lstrip("\n")
    thought = f"Which one?{marks.closing.rstrip()}\n"
    opened = forced_calls(form, STRICT, special, parallel=True, prompt_end=marks.opening)
    assert passes(opened, thought + call, compiler, tokenizer)
    unknown = forced_calls(form, STRICT, special, parallel=True)
    assert passes(unknown, marks.opening.rstrip() + "\n" + thought + call, compiler, tokenizer)
    off = forced_calls(form, STRICT, special, parallel=True, prompt_end=marks.closing)
    assert not passes(off, thought + call, compiler, tokenizer)
    assert read(form, [thought + call], marks.opening).thought == "Which one?"


HELD = [form for form in FORMATS.values() if form.thinks or form.messages]
JSON = '{"day": "Mon"}'


def thought_and_answer(form: Format) -> tuple[str, str]:
    """A thought as the format writes it, and the text between it and the answer."""
    said, marks = form.messages, form.thought
    if said is not None:
        head = f"{said.channel}final{said.body}" if said.channel else f"{said.recipient}{said.everyone[0]}{said.body}"
        if not said.thoughts:
            return "", head
        thinks = said.channel or said.recipient
        return f"{thinks}{said.thoughts[0]}{said.body}Hm.{said.ends[0]}{said.start}", head
    assert marks is not None
    opening = form.answers[0][0] if form.answers else ""
    return f"{marks.opening}Hm.{marks.closing}{marks.following}", opening


@pytest.mark.parametrize("form", HELD, ids=lambda form: form.name)
def test_an_answer_of_any_form_may_think_first(
    form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    schema = Grammar.json_schema({"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]})
    asked = after_thought(AskedGrammar(schema), form, "", special).grammar
    assert asked is not None and asked.thought is not None
    thought, opening = thought_and_answer(form)
    closing = form.answers[0][1] if form.answers else ""
    for text, told in ((thought + opening + JSON, bool(thought)), (opening + JSON + closing, False)):
        assert passes(asked, text, compiler, tokenizer), text
        found = read(structs.replace(form, calls=()), [text], "", {})
        assert (found.content.strip(), found.thought) == (JSON, "Hm." if told else ""), text
    assert not passes(asked, thought + opening + '{"day": 1}', compiler, tokenizer)


@pytest.mark.parametrize("form", [form for form in HELD if form.thought], ids=lambda form: form.name)
def test_an_answer_follows_the_thought_that_the_prompt_opened(
    form: Format, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    marks = form.thought
    assert marks is not None
    asked = after_thought(AskedGrammar(Grammar.choice(["ja"])), form, marks.opening, special).grammar
    assert asked is not None
    assert passes(asked, f"Hm.{marks.closing}ja", compiler, tokenizer)
    assert not passes(asked, "ja", compiler, tokenizer)
    off = after_thought(AskedGrammar(Grammar.choice(["ja"])), form, marks.opening + marks.closing, special).grammar
    assert off is not None and passes(off, "ja", compiler, tokenizer)
    assert not passes(off, f"Hm.{marks.closing}ja", compiler, tokenizer)


def passes(grammar: Grammar, text: str, compiler: GrammarCompiler, tokenizer: Tokenizer) -> bool:
    """Whether the grammar takes the whole text and may end after it."""
    machine = compiler.compile(grammar)
    for token in tokenizer.encode_rendered(text):
        if token not in allowed(machine):
            return False
        machine.feed(token)
    return bool(allowed(machine) & tokenizer.end_token_ids)


def closed(form: Format) -> str:
    """The end of a prompt that turns thinking off."""
    return form.thought.closing if form.thought else ""


def test_a_schema_is_kept_word_for_word() -> None:
    grammar = forced_calls(FORMATS["hermes"], {"bell": {"type": "object"}}, special, parallel=False)
    assert json.dumps("object") in grammar.text
