"""Grammar sources to mask machines: checked, compiled in one worker with limits, kept for the next request.

Knows: llguidance's compiler and its limits.
Must not know: requests, the engine, HTTP.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twostroke.text.grammar.check import check
from twostroke.text.grammar.machine import GrammarMachine
from twostroke.text.grammar.tokens import GrammarVocabulary, grammar_tokens
from twostroke.types.errors import InvalidRequest, Overloaded
from twostroke.types.grammar import Grammar, GrammarKind

if TYPE_CHECKING:
    import llguidance

WHITESPACE = r"(\r?\n)?[ \t]{0,32}"
"""Between the parts of JSON: a line end, an indentation. A model that may write any amount of white space sometimes
writes nothing else."""


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """compile_s: the longest that a compilation may take. waiting: callers that may wait for the worker.

    cached, cached_bytes: compiled grammars that are kept, by count and by the size of their sources. The others are
    the library's own measures of work: symbols, regex steps (about 50,000 a ms while compiling, 14,000 a ms in a
    step), lexer states (1 to 2 kB each).
    """

    compile_s: float = 5.0
    waiting: int = 16
    cached: int = 32
    cached_bytes: int = 1024 * 1024
    grammar_symbols: int = 200_000
    compile_fuel: int = 1_000_000
    step_fuel: int = 50_000
    step_items: int = 50_000
    lexer_states: int = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGrammar:
    """A MaskSource. The matcher stays as it was compiled."""

    _matcher: llguidance.LLMatcher

    def start(self) -> GrammarMachine:
        """See MaskSource."""
        return GrammarMachine(self._matcher.deep_copy())


class GrammarCompiler:
    """For any number of threads; one compilation at a time. Not for the thread that steps the engine."""

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        vocab_size: int,
        end_token_ids: Collection[int],
        limits: GrammarLimits | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._end_token_ids = tuple(sorted(end_token_ids))
        self._limits = limits or GrammarLimits()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")
        self._room = threading.BoundedSemaphore(self._limits.waiting)
        self._kept: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()  # of _kept
        self._tokens: llguidance.LLTokenizer | None = None  # the worker's own

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises InvalidRequest with the grammar's fault, Overloaded where too many wait."""
        with self._lock:
            if grammar in self._kept:
                self._kept.move_to_end(grammar)
                return self._kept[grammar]
        if not self._end_token_ids:
            raise InvalidRequest("This model has no end token, and a grammar needs one to end with.", param="grammar")
        check(grammar)
        if not self._room.acquire(blocking=False):
            raise Overloaded("Too many grammars wait to be compiled.", fix="Try again later.")
        try:
            job = self._worker.submit(self._compile, grammar)
            compiled = job.result(self._limits.compile_s)
        except TimeoutError:
            if job.cancel():  # it never began
                raise Overloaded("Other grammars take long to compile.", fix="Try again later.") from None
            raise InvalidRequest(
                f"The {grammar.kind} was not compiled within {self._limits.compile_s:g} s.",
                param="grammar",
                fix="Make it simpler.",
            ) from None
        finally:
            self._room.release()
        self._keep(grammar, compiled)
        return compiled

    def close(self) -> None:
        """Give the worker back."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        """In the worker. The first mask is computed here too: a grammar that is too heavy shows it there."""
        import llguidance

        if self._tokens is None:
            self._tokens = grammar_tokens(self._vocabulary, self._vocab_size, self._end_token_ids)
        limits = llguidance.LLParserLimits(
            initial_lexer_fuel=self._limits.compile_fuel,
            step_lexer_fuel=self._limits.step_fuel,
            step_max_items=self._limits.step_items,
            max_lexer_states=self._limits.lexer_states,
            max_grammar_size=self._limits.grammar_symbols,
            verbose_errors=False,
        )
        try:
            matcher = llguidance.LLMatcher(self._tokens, _source(grammar), log_level=0, limits=limits)
            if not matcher.is_error():
                matcher.compute_bitmask()
            fault = matcher.get_error()
        except ValueError as error:
            fault = str(error)
        if fault:
            raise InvalidRequest(f"The {grammar.kind} cannot be used: {_first_lines(fault)}", param="grammar")
        return CompiledGrammar(matcher)

    def _keep(self, grammar: Grammar, compiled: CompiledGrammar) -> None:
        with self._lock:
            self._kept[grammar] = compiled
            self._kept.move_to_end(grammar)
            while len(self._kept) > self._limits.cached or self._kept_bytes() > self._limits.cached_bytes:
                self._kept.popitem(last=False)

    def _kept_bytes(self) -> int:
        return sum(len(grammar.text) for grammar in self._kept)


def _source(grammar: Grammar) -> str:
    """In llguidance's own language. Raises ValueError."""
    import llguidance

    matcher = llguidance.LLMatcher
    if grammar.kind is GrammarKind.REGEX:
        return matcher.grammar_from_regex(grammar.text)
    if grammar.kind is GrammarKind.LARK:
        return matcher.grammar_from_lark(grammar.text)
    if grammar.kind is GrammarKind.CHOICE:
        return matcher.grammar_from_lark("start: " + " | ".join(map(_literal, json.loads(grammar.text))))
    schema = '{"type":"object"}' if grammar.kind is GrammarKind.JSON_OBJECT else grammar.text
    return matcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": WHITESPACE, "lenient": False})


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _first_lines(fault: str) -> str:
    """The library's own words about the grammar, without its listing."""
    lines = [line.strip() for line in fault.splitlines() if line.strip() and "<non-verbose/>" not in line]
    return " ".join(lines)[:400]
