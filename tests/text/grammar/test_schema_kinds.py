"""Schemas of zod and pydantic are taken, and a random answer that fits the grammar fits the schema."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from msgspec import structs

from tests.text.grammar.schema_kinds import MODELS, PYDANTIC, ZOD, without_unique_items
from tests.text.grammar.test_grammar import allowed
from tests.text.kinds import make
from twostroke.server.api.changed.kept_tools import FunctionSpec, Tool
from twostroke.server.api.tool_use import _held
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.talk.hold.calls import forced_calls
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.grammar import Grammar
from twostroke.types.notes import Notes

NARROWER = {"datetime", "uuid"}
"""Models whose own limits, of a year, an offset and a host, are narrower than the schema that they write."""
HERMES = structs.replace(FORMATS["hermes"], thought=None)
OPEN, CLOSE = "<tool_call>", "</tool_call>"
SEEDS, MOST_TOKENS = 4, 600
ALL = {**{f"zod {name}": schema for name, schema in ZOD.items()}, **{f"pydantic {n}": s for n, s in PYDANTIC.items()}}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make("byte_level")


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    yield made
    made.close()


def written(grammar: Grammar, compiler: GrammarCompiler, tokenizer: Tokenizer, seed: int) -> str:
    """A random answer. Brackets and quotes are often closed, so that it comes to its end."""
    closing = {i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) in (b'"', b"}", b"]")}
    machine, dice, tokens = compiler.compile(grammar), random.Random(seed), list[int]()
    while len(tokens) < MOST_TOKENS:
        may = allowed(machine)
        if may & tokenizer.end_token_ids:
            return b"".join(map(tokenizer.token_bytes, tokens)).decode()
        choice = may & closing if may & closing and dice.random() < 0.3 else may
        tokens.append(dice.choice(sorted(choice)))
        machine.feed(tokens[-1])
    raise AssertionError(f"no end after {MOST_TOKENS} tokens")


def finite(text: str) -> float:
    """JSON has numbers that no float can represent."""
    return max(-1e300, min(1e300, float(text)))


def validate(schema: Any, value: Any) -> None:
    jsonschema_rs.validate(without_unique_items(schema), value, validate_formats=True)


@pytest.mark.parametrize("name", ALL)
def test_an_answer_fits_its_schema(name: str, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    for seed in range(SEEDS):
        text = written(Grammar.json_schema(ALL[name]), compiler, tokenizer, seed)
        validate(ALL[name], json.loads(text, parse_float=finite))


@pytest.mark.parametrize("name", sorted(set(MODELS) - NARROWER))
def test_pydantic_reads_the_answer(name: str, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    for seed in range(SEEDS):
        MODELS[name].model_validate_json(written(Grammar.json_schema(PYDANTIC[name]), compiler, tokenizer, seed))


@pytest.mark.parametrize("name", [name for name, schema in ALL.items() if schema.get("type", "object") == "object"])
def test_the_same_schemas_hold_the_arguments_of_tools(
    name: str, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    """`definitions` and `$defs` of a tool are found inside that tool."""
    other = Tool(function=FunctionSpec(name="other", parameters={"definitions": {"Node": False}}))
    tool = Tool(function=FunctionSpec(name="it", parameters=ALL[name]))
    schemas = {each.function.name: _held(each, Notes())[0] for each in (tool, other)}
    grammar = forced_calls(HERMES, {"it": schemas["it"]}, lambda _: None, parallel=False)
    text = written(grammar, compiler, tokenizer, 1).strip().removeprefix(OPEN).removesuffix(CLOSE)
    call = json.loads(text, parse_float=finite)
    assert call["name"] == "it"
    validate(ALL[name], call["arguments"])
    both = forced_calls(HERMES, schemas, lambda _: None, parallel=False)
    assert written(both, compiler, tokenizer, 2)
