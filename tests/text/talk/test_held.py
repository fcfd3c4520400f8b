"""Held calls: whatever the grammar of a format lets through is read as calls that fit their schemas."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.text.kinds import make
from tests.text.talk.reading import TOOLS, read, valued, written
from tests.text.test_grammar import allowed
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.format import Format
from twostroke.text.talk.hold.calls import forced_calls, strict_calls
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.grammar import Grammar

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
    """A random text of the grammar; None where it did not end. Marks, brackets and quotes are taken often."""
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
    """How many calls the text has; each fits its schema and nothing but a thought stands around them."""
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


def passes(grammar: Grammar, text: str, compiler: GrammarCompiler, tokenizer: Tokenizer) -> bool:
    """True where the grammar takes the whole text and may end behind it."""
    machine = compiler.compile(grammar)
    for token in tokenizer.encode_rendered(text):
        if token not in allowed(machine):
            return False
        machine.feed(token)
    return bool(allowed(machine) & tokenizer.end_token_ids)


def closed(form: Format) -> str:
    """A prompt's end that turns thinking off."""
    return form.thought.closing if form.thought else ""


def test_a_schema_is_kept_word_for_word() -> None:
    grammar = forced_calls(FORMATS["hermes"], {"bell": {"type": "object"}}, special, parallel=False)
    assert json.dumps("object") in grammar.text
