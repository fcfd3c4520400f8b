"""Grammars to masks: what each kind allows, where each ends, what is refused, and what a hostile one can do."""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.kinds import make
from tests.tiers import examples
from twostroke.text.grammar.compiler import GrammarCompiler, GrammarLimits
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import MAX_CHOICES, MAX_REGEX_BYTES, MAX_SCHEMA_BYTES, Grammar, TokenMask

EXTRA_ROWS = 7  # models often have more logits than their tokenizer has tokens


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make("byte_level")


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size + EXTRA_ROWS, tokenizer.end_token_ids)
    yield made
    made.close()


def allowed(machine: TokenMask) -> set[int]:
    bits = np.unpackbits(np.frombuffer(machine.bits(), np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def walk(machine: TokenMask, ends: frozenset[int], seed: int, most: int = 300) -> tuple[list[int], bool]:
    """A random way through a grammar: its tokens, and whether it came to the end."""
    dice, tokens = random.Random(seed), []
    while len(tokens) < most:
        token = dice.choice(sorted(allowed(machine)))
        if token in ends:
            return tokens, True
        machine.feed(token)
        tokens.append(token)
    return tokens, False


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("byte_level", "[a-eé]{1,6}( [a-e🙂]{1,3}){0,2}"),
        ("byte_level_in_sequence", "[a-eé]{1,6}( [a-e🙂]{1,3}){0,2}"),
        ("byte_fallback", "[a-eé]{1,6}( [a-e🙂]{1,3}){0,2}"),
        ("metaspace", r"(s|ing| |\.| the| a){1,9}"),
    ],
)
def test_every_tokenizer_writes_what_the_pattern_says(kind: str, pattern: str) -> None:
    tokenizer = make(kind)
    ends = tokenizer.end_token_ids
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, ends)
    try:
        for seed in range(20):
            tokens, ended = walk(compiler.compile(Grammar.regex(pattern)), ends, seed)
            text = b"".join(map(tokenizer.token_bytes, tokens)).decode()
            assert ended and re.fullmatch(pattern, text), text
    finally:
        compiler.close()


@pytest.mark.parametrize("kind", ["word_piece", "end_of_word"])
def test_a_tokenizer_whose_tokens_are_no_bytes_is_refused(kind: str) -> None:
    tokenizer = make(kind)
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    with pytest.raises(InvalidRequest, match="strings of bytes"):
        compiler.compile(Grammar.regex("a"))
    compiler.close()


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (Grammar.choice(["yes", "no", 'a "quoted"\nline é']), r'yes|no|a "quoted"\nline é'),
        (Grammar.regex("a/b\\\\[/]?\n|c\td"), "a/b\\\\/?\n|c\td"),
        (Grammar.regex(r"\d{2}\.\d"), r"[0-9]{2}\.[0-9]"),
        (Grammar.lark('start: "x" start "y" | "z"'), r"x*zy*"),
        (Grammar.lark('root ::= ("a" | "b"){1,3} ws "!"\nws ::= [ ]*\n'), r"[ab]{1,3} *!"),
        (Grammar.json_schema({"enum": ["red", 5, None]}), r'"red"|5|null'),
        (Grammar.json_schema('{"type": "integer", "minimum": 8, "maximum": 12}'), r"8|9|1[0-2]"),
        (Grammar.json_schema(True), None),
        (Grammar.json_object(), None),
    ],
)
def test_every_kind(grammar: Grammar, pattern: str | None, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    for seed in range(10):
        tokens, ended = walk(compiler.compile(grammar), tokenizer.end_token_ids, seed)
        text = b"".join(map(tokenizer.token_bytes, tokens)).decode(errors="replace")
        if pattern is not None:
            assert ended or len(tokens) == 300
            assert not ended or re.fullmatch(pattern, text), text


def test_at_its_end_only_end_tokens_are_left(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    machine = compiler.compile(Grammar.choice(["yes"]))
    tokens, ended = walk(machine, frozenset(), 1, most=1)
    while b"".join(map(tokenizer.token_bytes, tokens)) != b"yes":
        tokens += walk(machine, frozenset(), 1, most=1)[0]
    assert not ended and allowed(machine) == set(tokenizer.end_token_ids)


def test_special_tokens_and_rows_without_a_token_are_never_allowed(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    forbidden = tokenizer.special_ids | set(range(tokenizer.vocab_size, tokenizer.vocab_size + EXTRA_ROWS))
    written = "</s>" in {tokenizer.token_text(i) for i in tokenizer.special_ids}
    assert written  # the text of an end token, below, is a text like any other
    for grammar in (Grammar.regex(r"(.|\n)*"), Grammar.choice(["a</s>b"]), Grammar.json_schema({"const": "<|end|>"})):
        machine, text = compiler.compile(grammar), b""
        for _ in range(60):
            now = allowed(machine)
            assert not (now & forbidden) - tokenizer.end_token_ids
            if now & tokenizer.end_token_ids and grammar.kind != "regex":
                assert text in (b"a</s>b", b'"<|end|>"')
                break
            token = min(now - tokenizer.end_token_ids)
            machine.feed(token)
            text += tokenizer.token_bytes(token)


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_rewinding_leaves_no_trace(seed: int, cuts: list[int], compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    """However often it goes back, an automaton is in the same state as a new one after the same tokens."""
    grammar = Grammar.json_schema({"type": "array", "items": {"enum": ["ab", "abc", 12]}, "maxItems": 9})
    machine, tokens = compiler.compile(grammar), list[int]()
    for place, cut in enumerate([*cuts, 1000]):
        tokens += walk(machine, tokenizer.end_token_ids, seed + place, most=12)[0]
        tokens = tokens[:cut]
        machine.rewind(len(tokens))
        fresh = compiler.compile(grammar)
        for token in tokens:
            fresh.feed(token)
        assert machine.num_tokens == len(tokens)
        assert machine.bits() == fresh.bits()


def test_machines_of_one_grammar_do_not_meet(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = Grammar.regex("[a-z ]{0,40}")
    first = compiler.compile(grammar)
    before = first.bits()
    for seed in range(5):
        walk(compiler.compile(grammar), tokenizer.end_token_ids, seed)
    assert first.bits() == before == compiler.compile(grammar).bits()


def test_a_forbidden_token_breaks_its_own_machine_only(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    grammar = Grammar.regex("a+")
    broken = compiler.compile(grammar)
    broken.feed(tokenizer.encode_rendered("t")[0])
    broken.feed(tokenizer.encode_rendered("a")[0])  # there is no exception here, because commit must not fail
    with pytest.raises(ValueError, match="cannot be followed"):
        broken.bits()
    assert allowed(compiler.compile(grammar))


DEEP = '{"items":' * 40 + "{}" + "}" * 40
FAULTS = [
    (Grammar.regex("(a"), "unclosed"),
    (Grammar.regex("(?=a)b"), "look-around"),
    (Grammar.json_schema({"type": "strin"}), "strin"),
    (Grammar.json_schema("{"), "no JSON"),
    (Grammar.json_schema("5"), "boolean"),
    (Grammar.json_schema(DEEP), "32 levels"),
    (Grammar.json_schema("[" * 30000), "deep|JSON"),
    (Grammar.json_schema({"$ref": "https://example.invalid/schema.json"}), "only references inside"),
    (Grammar.json_schema({"$ref": "#"}), "no text can fit"),
    (Grammar.json_schema(False), "no value can fit"),
    (Grammar.json_schema({"unevaluatedItems": False}), "unevaluatedItems"),
    (Grammar.json_schema({"anyOf": [{"enum": list(range(3000))}, {"enum": list(range(3000))}]}), "4,096 enum"),
    (Grammar.json_schema({"pattern": "a" * 2049}), "2,048"),
    (Grammar.json_schema({"patternProperties": {"a" * 2049: {}}}), "2,048"),
    (Grammar.lark("start: nothing"), "nothing"),
    (Grammar.lark("root ::= nothing"), "nothing"),
    (Grammar.lark("root ::= " + "(" * 3000 + '"a"' + ")" * 3000), "recursion"),
    (Grammar.lark("\x00"), "cannot be used"),
    (Grammar.lark('%llguidance {"no_forcing": false}\nstart: "a"'), "directive"),
]


@pytest.mark.parametrize(("grammar", "words"), FAULTS, ids=lambda value: str(value)[:40])
def test_faults_are_in_the_grammars_own_terms(grammar: Grammar, words: str, compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        compiler.compile(grammar)
    assert caught.value.param == "grammar"
    assert len(str(caught.value)) < 600 and "non-verbose" not in str(caught.value)
    assert compiler.compile(Grammar.choice(["still", "here"])).bits()


@pytest.mark.parametrize(
    "make_it",
    [
        lambda: Grammar.regex("a" * (MAX_REGEX_BYTES + 1)),
        lambda: Grammar.regex("é" * (MAX_REGEX_BYTES // 2 + 1)),
        lambda: Grammar.json_schema({"title": "x" * MAX_SCHEMA_BYTES}),
        lambda: Grammar.choice(["x"] * (MAX_CHOICES + 1)),
        lambda: Grammar.choice([]),
        lambda: Grammar.choice([""]),
        lambda: Grammar.regex(""),
        lambda: Grammar.lark("x" * 70_000),
        lambda: Grammar.json_schema({"x": float}),  # type: ignore[dict-item]
    ],
)
def test_sizes_are_checked_before_anything_is_compiled(make_it) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_it()
    assert caught.value.param == "grammar"


def small(tokenizer: Tokenizer, **limits: object) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids, GrammarLimits(**limits))  # type: ignore[arg-type]


EXPLODING = Grammar.json_schema({"allOf": [{"pattern": f".*{chr(97 + i)}.*{chr(98 + i)}.{{5}}"} for i in range(20)]})


def easy(compiler: GrammarCompiler, text: str) -> TokenMask:
    """An automaton of a regular expression that takes a few milliseconds. Only a machine that stands still needs a
    second try."""
    for _ in range(9):
        with contextlib.suppress(InvalidRequest):
            return compiler.compile(Grammar.regex(text))
    return compiler.compile(Grammar.regex(text))


def test_one_that_takes_too_long_is_killed_and_the_next_is_compiled(tokenizer: Tokenizer) -> None:
    compiler = small(tokenizer, compile_s=0.5)
    try:
        assert easy(compiler, "a")
        with pytest.raises(InvalidRequest, match="too much time or memory"):
            compiler.compile(EXPLODING)
        assert easy(compiler, "b").bits()
    finally:
        compiler.close()


def test_one_that_takes_too_much_memory_is_ended_by_its_limit(tokenizer: Tokenizer) -> None:
    compiler = small(tokenizer, compile_s=60.0, compile_bytes=160 * 2**20)
    try:
        with pytest.raises(InvalidRequest, match="too much time or memory"):
            compiler.compile(EXPLODING)
        assert compiler.compile(Grammar.regex("b")).bits()
    finally:
        compiler.close()


def test_few_are_kept(tokenizer: Tokenizer) -> None:
    compiler = small(tokenizer, cached=3, cached_bytes=4000)
    try:
        for i in range(5):
            compiler.compile(Grammar.choice([f"{i}"]))
        assert [grammar.text for grammar in compiler._kept] == ['["2"]', '["3"]', '["4"]']
        compiler.compile(Grammar.choice(["2"]))
        compiler.compile(Grammar.choice(["x" * 1900]))
        assert Grammar.choice(["3"]) not in compiler._kept and compiler._kept_bytes() <= 4000
    finally:
        compiler.close()


def test_a_machine_at_its_limit_is_nothing_to_the_others(tokenizer: Tokenizer) -> None:
    """The library's copies of a matcher share a lexer. If one has reached a limit, all of them have."""
    compiler = small(tokenizer, lexer_states=300)
    grammar = Grammar.regex(r"([a-z]{1,100}[0-9]{1,100}){1,10}")
    try:
        before, failed = compiler.compile(grammar), 0
        for seed in range(8):
            try:
                walk(compiler.compile(grammar), tokenizer.end_token_ids, seed)
            except ValueError:
                failed += 1
        assert failed, "no machine came to its limit"
        assert before.bits() == compiler.compile(grammar).bits()
    finally:
        compiler.close()


def test_many_machines_of_a_heavy_grammar_are_refused(tokenizer: Tokenizer) -> None:
    compiler = small(tokenizer, compile_s=60.0)
    heavy = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(300)}}
    try:
        assert len(compiler.submit(Grammar.json_schema(heavy), 2).result()) == 2
        # The limit is for all machines together. None is quick enough for this grammar, and each is for 60 s.
        compiler._limits = replace(compiler._limits, compile_s=1e-9)
        with pytest.raises(InvalidRequest, match="128 completions"):
            compiler.submit(Grammar.json_schema(heavy), 128).result()
        compiler._limits = replace(compiler._limits, compile_s=60.0)
        assert len(compiler.submit(Grammar.regex("a"), 128).result()) == 128
    finally:
        compiler.close()


def test_the_process_ends_with_the_compiler(tokenizer: Tokenizer) -> None:
    compiler = small(tokenizer)
    compiler.compile(Grammar.regex("a"))
    guard = compiler._trials._lanes[0].guard  # type: ignore[attr-defined]
    assert guard is not None and guard._process is not None
    process = guard._process
    assert process.poll() is None
    compiler.close()
    assert process.poll() is not None


@pytest.mark.parametrize("at_work", [False, True])
def test_the_process_does_not_outlive_a_parent_that_was_killed(at_work: bool) -> None:
    """If idle, it sees the end of its input. If it works on something endless, its own timer ends it."""
    code = (
        "import contextlib, os, threading, time\n"
        "from twostroke.types.errors import InvalidRequest\n"
        "from tests.text.kinds import make\n"
        "from twostroke.text.grammar.compiler import GrammarCompiler, GrammarLimits\n"
        "from twostroke.types.grammar import Grammar\n"
        "t = make('byte_level')\n"
        "c = GrammarCompiler(t, t.vocab_size, t.end_token_ids, GrammarLimits(compile_s=1.0, quick_s=60.0))\n"
        "for _ in range(9):\n"
        "    with contextlib.suppress(InvalidRequest):\n"
        "        c.compile(Grammar.regex('a'))\n"
        "        break\n"
        "print(c._trials._lanes[0].guard._process.pid, flush=True)\n"
        f"c.submit(Grammar.json_schema({_parsed(EXPLODING)!r})) if {at_work} else None\n"
        "time.sleep(0.3)\nos.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -9, killed.stderr
    child = Path("/proc") / killed.stdout.strip()
    deadline = time.monotonic() + 60
    while child.exists() and "guard_child" in (child / "cmdline").read_text():
        assert time.monotonic() < deadline, "the process is still there"
        time.sleep(0.05)


def test_a_model_without_an_end_token_is_refused(tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, ())
    with pytest.raises(InvalidRequest, match="end token"):
        compiler.compile(Grammar.regex("a"))
    compiler.close()


def _parsed(grammar: Grammar) -> dict[str, object]:
    made: dict[str, object] = json.loads(grammar.text)
    return made


def test_a_machine_tells_how_long_its_masks_take(compiler: GrammarCompiler) -> None:
    """The scheduler divides the time that steps have for hard grammars, and automata of one grammar have the same
    beginning."""
    one, other = compiler.submit(Grammar.json_object(), 2).result()
    before_s = one.mask_s
    assert before_s == other.mask_s > 0
    one.bits()
    assert one.mask_s != before_s and one.mask_s > 0
