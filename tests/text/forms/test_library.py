"""The library's C interface: it has the same masks as its Python classes, and the interpreter goes on meanwhile."""

from __future__ import annotations

import json
import random
import threading

import llguidance
import pytest

from tests.text.grammar.test_grammar import allowed
from tests.text.kinds import make
from twostroke.text.grammar import library
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.guard_child import OPTIONS
from twostroke.text.grammar.library import LibraryVocabulary, Matcher
from twostroke.text.grammar.tokens import TRIAL_TOKENS, Tokens
from twostroke.types.errors import BackendError
from twostroke.types.grammar import Grammar

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}, "b": {"type": "integer"}}}
SOURCES = [f"{OPTIONS}start: %json {json.dumps(SCHEMA)}", f"{OPTIONS}start: /[a-e]{{1,6}}( é|🙂){{0,2}}/"]


class _Wrapped:
    """The object that the Python class reads."""

    def __init__(self, tokens: list[bytes], special: list[int], end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id, self.bos_token_id = tokens, special, end, None

    def __call__(self, _raw: bytes) -> list[int]:
        return []


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback", "metaspace"])
@pytest.mark.parametrize("source", SOURCES, ids=["schema", "regex"])
def test_masks_are_those_of_the_python_classes(kind: str, source: str) -> None:
    tokenizer = make(kind)
    rows = tokenizer.rows_bytes(tokenizer.vocab_size + 5)
    special, ends = sorted(tokenizer.special_ids), sorted(tokenizer.end_token_ids)
    vocabulary = LibraryVocabulary(rows, special, ends)
    theirs = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Wrapped(rows, special, ends[0])), eos_token=ends)
    dice = random.Random(1)
    for _ in range(5):
        ours, other = Matcher(vocabulary, source, {}), llguidance.LLMatcher(theirs, source)
        for _ in range(40):
            mask = ours.mask()
            theirs_mask = other.compute_bitmask()
            assert (mask is None) == other.is_error()
            if mask is None:
                return
            assert mask == theirs_mask
            bits = "".join(f"{byte:08b}"[::-1] for byte in mask)
            token_id = dice.choice([i for i, bit in enumerate(bits) if bit == "1"])
            if token_id in ends:
                break
            assert ours.consume(token_id) and other.consume_token(token_id)
        assert ours.rollback(1) and other.rollback(1) and ours.mask() == other.compute_bitmask()


def test_one_that_has_failed_stays_failed() -> None:
    tokenizer = make("byte_level")
    ends = sorted(tokenizer.end_token_ids)
    vocabulary = LibraryVocabulary(tokenizer.rows_bytes(tokenizer.vocab_size), sorted(tokenizer.special_ids), ends)
    broken = Matcher(vocabulary, "start: nothing", {"verbose_errors": False})
    assert "nothing" in broken.fault and broken.mask() is None
    assert not broken.consume(1) and not broken.rollback(1) and "nothing" in broken.fault
    zero = Matcher(vocabulary, "start: /a\x00b/", {})  # this cannot be a text of C
    assert not zero.fault and zero.mask()


def test_the_interpreter_goes_on_while_a_vocabulary_is_read() -> None:
    """The Python classes hold the interpreter's lock, so no other thread gets a turn."""
    rows = [bytes([n % 251, n // 251 % 251, n // 63001, 7]) for n in range(200_000)]
    ended = threading.Event()
    reading = threading.Thread(target=lambda: (LibraryVocabulary(rows, [], [0]), ended.set()))
    reading.start()
    turns = 0
    while not ended.is_set():
        turns += 1
    reading.join()
    assert turns > 1000, turns


def test_a_library_of_another_form_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_DEFAULTS", {"max_items_in_row": 1})
    library._loaded.cache_clear()
    try:
        with pytest.raises(BackendError, match="Install llguidance"):
            library.library()
    finally:
        monkeypatch.undo()
        library._loaded.cache_clear()


def test_a_trial_has_every_byte_and_special_token_and_few_others() -> None:
    class Large:
        special_ids, tokens_are_bytes = frozenset([70_000, 70_001]), True

        def rows_bytes(self, num_rows: int) -> list[bytes]:
            single = [bytes([byte]) for byte in range(256)]
            return [*(b"%d" % n for n in range(num_rows - 256)), *single]

    trial = Tokens(Large(), 100_000, (70_000,)).trial()
    assert {bytes([byte]) for byte in range(256)} <= set(trial.tokens.values())
    assert {70_000, 70_001} <= set(trial.tokens) and len(trial.tokens) < 2 * TRIAL_TOKENS
    assert trial.num_rows == 100_000


def test_what_is_prepared_serves_the_first_grammar() -> None:
    tokenizer, made = make("byte_level"), threading.Event()
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    try:
        compiler.prepare(made.set)
        assert made.wait(60)
        assert allowed(compiler.compile(Grammar.regex("a")))
    finally:
        compiler.close()


@pytest.mark.parametrize("threads", [8])
def test_first_grammars_of_many_threads_share_one_vocabulary(threads: int) -> None:
    tokenizer = make("byte_level")
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_token_ids)
    together, masks = threading.Barrier(threads), list[bytes]()

    def first(number: int) -> None:
        together.wait()
        if number == 0:
            compiler.prepare(lambda: None)
        masks.append(compiler.compile(Grammar.regex("[ab]")).bits())

    try:
        running = [threading.Thread(target=first, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert len(masks) == threads and len(set(masks)) == 1
    finally:
        compiler.close()
