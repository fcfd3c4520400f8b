"""A form of an answer comes after the thought of a model that thinks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.text.forms.walks import Walker
from tests.text.grammar.test_grammar import allowed
from tests.text.kinds import make
from twostroke.server.api.fields.grammar import AskedGrammar, after_thought
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.thought import after_thought as source_after_thought
from twostroke.text.talk.format import Format, ThoughtMarks
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.grammar import Grammar, ThoughtFirst

MARKS = ThoughtMarks("<think>", "</think>")
THINKING = Format("thinking", thought=MARKS)
ABOUT_START = 'start: "start" more // start here\nmore: /start+/ | start\n'
FORMS = [
    (Grammar.json_schema({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}), '{"a": 1.5}'),
    (Grammar.json_object(), '{"start": 1}'),
    (Grammar.regex("[a-z]{3}"), "abc"),
    (Grammar.choice(["start", "end"]), "start"),
    (Grammar.lark(ABOUT_START), "startstartt"),
    (Grammar.lark('root ::= "a" | "b" root'), "ba"),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make("byte_level")


@pytest.fixture(scope="module")
def walker(tokenizer: Tokenizer) -> Iterator[Walker]:
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    yield Walker(compiler, tokenizer)
    compiler.close()


def thinking(grammar: Grammar, begun: bool) -> Grammar:
    return dataclasses.replace(grammar, thought=ThoughtFirst(MARKS.opening, MARKS.closing, begun))


@pytest.mark.parametrize(("grammar", "text"), FORMS, ids=lambda value: str(value)[:50])
def test_the_form_begins_after_the_closing_mark(grammar: Grammar, text: str, walker: Walker) -> None:
    assert walker.takes(grammar, text)
    inside = thinking(grammar, begun=True)
    assert walker.takes(inside, f'I think: "</thin {{</think>{text}')
    assert walker.takes(inside, f"</think>\n\n{text}") and walker.takes(inside, f"a\nb</think> {text}")
    assert not walker.takes(inside, text) and not walker.takes(inside, "only thoughts")
    assert not walker.takes(inside, "thoughts</think>") and not walker.takes(inside, f"a</think>!{text}")


@pytest.mark.parametrize(("grammar", "text"), FORMS, ids=lambda value: str(value)[:50])
def test_a_model_that_may_think_writes_the_form_at_once_or_after_a_thought(
    grammar: Grammar, text: str, walker: Walker
) -> None:
    may = thinking(grammar, begun=False)
    assert walker.takes(may, text) and walker.takes(may, f"<think>why</think>\n{text}")
    assert not walker.takes(may, f"why</think>{text}") and not walker.takes(may, "<think>why</think>")


def test_marks_that_are_special_tokens_are_those_tokens(walker: Walker, tokenizer: Tokenizer) -> None:
    opening, closing = sorted(tokenizer.special_ids - tokenizer.end_token_ids)[:2]
    thought = ThoughtFirst("<a>", "</a>", False, opening, closing)
    machine = walker.compiler.compile(dataclasses.replace(Grammar.choice(["x"]), thought=thought))
    assert opening in allowed(machine) and closing not in allowed(machine)
    machine.feed(opening)
    for token_id in tokenizer.encode_rendered("hm </a>"):  # as text, it is no mark
        assert closing in allowed(machine) and not allowed(machine) & tokenizer.end_token_ids
        machine.feed(token_id)
    machine.feed(closing)
    for token_id in tokenizer.encode_rendered("x"):
        machine.feed(token_id)
    assert allowed(machine) == set(tokenizer.end_token_ids)


def test_the_end_of_the_prompt_says_whether_the_model_thinks() -> None:
    asked = AskedGrammar(Grammar.regex("a"), "regex")

    def thought_after(rendered: str) -> ThoughtFirst | None:
        grammar = after_thought(asked, THINKING, rendered, lambda _: None).grammar
        assert grammar is not None
        return grammar.thought

    opened, open_or_not = thought_after("assistant:<think>\n"), thought_after("assistant:")
    assert opened is not None and opened.begun and open_or_not is not None and not open_or_not.begun
    assert thought_after("assistant:<think>\n\n</think>\n\n") is None, "the template has closed it"
    assert after_thought(asked, Format("x"), "assistant:", lambda _: None) == asked
    assert after_thought(AskedGrammar(), THINKING, "<think>", lambda _: None) == AskedGrammar()


def test_only_the_rule_is_renamed() -> None:
    source = source_after_thought("%llguidance {}\n" + ABOUT_START, ThoughtFirst("<t>", "</t>", True))
    assert 'answer_form: "start" more // start here\nmore: /start+/ | answer_form' in source
