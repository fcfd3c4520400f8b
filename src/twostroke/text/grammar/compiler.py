"""Grammar sources to mask machines: checked, tried in a process that can be killed, compiled, kept for later.

Knows: llguidance's compiler and its limits.
Must not know: requests, the engine, HTTP.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twostroke.text.grammar.check import check
from twostroke.text.grammar.guard import GrammarGuard, GuardOpening
from twostroke.text.grammar.machine import GrammarMachine
from twostroke.text.grammar.tokens import GrammarVocabulary, Tokens, grammar_tokens
from twostroke.types.errors import InvalidRequest, Overloaded
from twostroke.types.grammar import Grammar, MaskSource

if TYPE_CHECKING:
    import llguidance


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """compile_s, compile_bytes: the most that a compilation may take. waiting: grammars that may wait for the worker,
    the one at work among them.

    cached, cached_bytes: compiled grammars that are kept, by count and by the size of their sources. The others are
    the library's own measures of work: symbols, regex steps (about 50,000 a ms while compiling, 14,000 a ms in a
    step), lexer states (1 to 2 kB each).
    """

    compile_s: float = 2.0
    compile_bytes: int = 1024**3
    waiting: int = 8
    cached: int = 32
    cached_bytes: int = 1024 * 1024
    grammar_symbols: int = 200_000
    compile_fuel: int = 1_000_000
    step_fuel: int = 50_000
    step_items: int = 50_000
    lexer_states: int = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class CompiledGrammar:
    """A MaskSource. The matcher stays as it was compiled."""

    _matcher: llguidance.LLMatcher

    def start(self) -> GrammarMachine:
        """See MaskSource."""
        return GrammarMachine(self._matcher.deep_copy())


class GrammarCompiler:
    """For any number of threads; one compilation at a time, in a thread of its own."""

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
        # These two are the worker's own.
        self._tokens: llguidance.LLTokenizer | None = None
        self._guard: GrammarGuard | None = None

    def submit(self, grammar: Grammar) -> Future[MaskSource]:
        """Begin to compile; returns at once. Raises Overloaded where too many wait, InvalidRequest where no grammar
        fits this model. The future raises InvalidRequest with the grammar's fault.
        """
        kept = self._found(grammar)
        if kept is not None:
            future: Future[MaskSource] = Future()
            future.set_result(kept)
            return future
        self._check_model()
        if not self._room.acquire(blocking=False):
            raise Overloaded(
                "Too many grammars wait to be compiled.", retry_after_s=self._limits.compile_s, fix="Try again later."
            )
        future = self._worker.submit(self._compile, grammar)
        future.add_done_callback(lambda _: self._room.release())
        return future

    def compile(self, grammar: Grammar) -> MaskSource:
        """`submit`, waited for."""
        return self.submit(grammar).result()

    def close(self) -> None:
        """Give worker and process back."""
        self._worker.submit(self._end_guard)
        self._worker.shutdown(wait=True, cancel_futures=False)

    def _check_model(self) -> None:
        if not self._end_token_ids:
            raise InvalidRequest("This model has no end token, and a grammar needs one to end with.", param="grammar")
        if not self._vocabulary.tokens_are_bytes:
            raise InvalidRequest(
                "This model's tokenizer cannot follow a grammar.",
                why="Its tokens are no strings of bytes.",
                param="grammar",
            )

    def _end_guard(self) -> None:
        if self._guard is not None:
            self._guard.close()

    def _compile(self, grammar: Grammar) -> MaskSource:
        """In the worker. The same work that the guard's process has done within its limits, with the real tokens."""
        import llguidance

        kept = self._found(grammar)  # two asked for the same at once
        if kept is not None:
            return kept
        check(grammar)
        if self._guard is None or self._tokens is None:
            tokens = Tokens(self._vocabulary, self._vocab_size, self._end_token_ids)
            self._tokens = grammar_tokens(tokens, self._end_token_ids)
            self._guard = GrammarGuard(self._opening(tokens))
        source = self._guard.source(grammar)
        limits = llguidance.LLParserLimits(**self._library_limits())
        matcher = llguidance.LLMatcher(self._tokens, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise InvalidRequest(f"The {grammar.kind} cannot be used.", param="grammar")
        compiled = CompiledGrammar(matcher)
        self._keep(grammar, compiled)
        return compiled

    def _opening(self, tokens: Tokens) -> GuardOpening:
        return GuardOpening(
            tokens.tokens,
            tokens.special_token_ids,
            self._end_token_ids,
            self._library_limits(),
            self._limits.compile_s,
            self._limits.compile_bytes,
        )

    def _library_limits(self) -> dict[str, Any]:
        limits = self._limits
        return {
            "initial_lexer_fuel": limits.compile_fuel,
            "step_lexer_fuel": limits.step_fuel,
            "step_max_items": limits.step_items,
            "max_lexer_states": limits.lexer_states,
            "max_grammar_size": limits.grammar_symbols,
            "verbose_errors": False,
        }

    def _found(self, grammar: Grammar) -> MaskSource | None:
        with self._lock:
            if grammar in self._kept:
                self._kept.move_to_end(grammar)
            return self._kept.get(grammar)

    def _keep(self, grammar: Grammar, compiled: CompiledGrammar) -> None:
        with self._lock:
            self._kept[grammar] = compiled
            self._kept.move_to_end(grammar)
            while len(self._kept) > self._limits.cached or self._kept_bytes() > self._limits.cached_bytes:
                self._kept.popitem(last=False)

    def _kept_bytes(self) -> int:
        return sum(len(grammar.text) for grammar in self._kept)
