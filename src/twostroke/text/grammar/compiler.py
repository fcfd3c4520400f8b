"""Turns grammars of requests into objects that make token masks. A grammar is checked, compiled on trial in a process
that can be killed, compiled, and its source is kept for later."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from twostroke.text.grammar.check import checked
from twostroke.text.grammar.faults import in_users_terms
from twostroke.text.grammar.guard import GrammarGuard, GuardOpening, TookTooMuch
from twostroke.text.grammar.guard_child import OPTIONS
from twostroke.text.grammar.library import Matcher
from twostroke.text.grammar.machine import GrammarMachine
from twostroke.text.grammar.numbers import bounded
from twostroke.text.grammar.thought import after_thought
from twostroke.text.grammar.tokens import GrammarVocabulary, Tokens
from twostroke.text.grammar.trials import Sources, TooHard, Trials
from twostroke.types.errors import BackendError, InvalidRequest
from twostroke.types.grammar import Grammar, TokenMask


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Limits on the work for grammars. compile_s, compile_bytes: the most seconds and bytes that a compilation may
    take. quick_s: the seconds of processor time after which the trial of a grammar moves from the quick process to the
    slow one. waiting: the number of grammars that may wait for each of the two processes.

    cached, cached_bytes: the number and total size of the sources of tried grammars that are kept. The other fields are
    llguidance's own measures of work. They count symbols, regex steps (about 50,000 a ms while compiling, 14,000 a ms
    in a step) and lexer states (1 to 2 kB each).
    """

    compile_s: float = 2.0
    compile_bytes: int = 1024**3
    quick_s: float = 0.25
    waiting: int = 8
    cached: int = 32
    cached_bytes: int = 1024 * 1024
    grammar_symbols: int = 200_000
    compile_fuel: int = 1_000_000
    step_fuel: int = 50_000
    step_items: int = 50_000
    lexer_states: int = 50_000


HARD_NICENESS = 10
"""The niceness of the process that tries hard grammars: model steps and easy grammars have precedence."""

FIRST = f"{OPTIONS}start: %json {{}}"
"""A small grammar that is compiled when the vocabulary is made, so that everything is loaded when the first grammar of
a request comes."""


class GrammarCompiler:
    """Compiles grammars, for any number of threads. Two threads compile new grammars on trial; another compiles those
    that passed, for use.

    Each completion's GrammarMachine is compiled anew from the grammar's source. Copies of one llguidance matcher would
    share its lexer, with the lexer states that other answers built and with the limit on their number.
    """

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        vocab_size: int,
        end_token_ids: Collection[int],
        limits: GrammarLimits | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._end_token_ids = tuple(sorted(end_token_ids))
        self._limits = limits or GrammarLimits()
        quick_s = min(self._limits.quick_s, self._limits.compile_s / 2)
        lanes = (_TrialLane(self, quick_s, hard=False), _TrialLane(self, self._limits.compile_s, hard=True))
        self._trials = Trials(lanes, self._limits.waiting, self._limits.compile_s)
        self._builds = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar-build")
        self._lock = threading.Lock()  # guards the two fields below
        self._kept: OrderedDict[Grammar, Sources] = OrderedDict()  # sources of the grammars that passed
        self._tokens = Tokens(vocabulary, vocab_size, self._end_token_ids)

    def prepare(self, made: Callable[[], object]) -> None:
        """Begins to make the vocabulary and the process that the first grammar needs, and returns at once. If that
        fails, the first grammar reports the error.

        made: a function that is called when the vocabulary is made. It gives memory back to the system, because making
        the vocabulary takes four times the memory that the vocabulary needs afterwards.
        """

        def make() -> None:
            Matcher(self._tokens.vocabulary(), FIRST, self._library_limits()).mask()
            made()

        if self._end_token_ids and self._vocabulary.tokens_are_bytes:
            with contextlib.suppress(BackendError, RuntimeError):  # the system begins no more threads
                self._builds.submit(make)
                self._trials.start()

    def submit(self, grammar: Grammar, count: int = 1) -> Future[tuple[TokenMask, ...]]:
        """Begins to compile `count` GrammarMachines of a grammar; returns at once. A new grammar is first compiled once
        in a process with limits (a trial), for all requests that wait for it.

        Raises Overloaded where too many grammars wait, InvalidRequest where this model can use no grammar. The future
        raises InvalidRequest with the grammar's fault.
        """
        sources = self._found(grammar)
        if sources is not None:
            return self._builds.submit(self._machines, grammar, sources, count)
        self._check_model()
        return self._after(self._trials.join(grammar), grammar, count)

    def compile(self, grammar: Grammar) -> TokenMask:
        """Compiles a grammar, waits until that is done, and returns the object that makes its token masks."""
        return self.submit(grammar).result()[0]

    def close(self) -> None:
        """Ends the threads and the processes."""
        self._trials.close()
        self._builds.shutdown(wait=True, cancel_futures=False)

    def _after(self, trial: Future[Sources], grammar: Grammar, count: int) -> Future[tuple[TokenMask, ...]]:
        """Returns a future of `count` GrammarMachines, one for each completion. They are compiled when the grammar's
        trial, in a process with limits, has given its sources. Cancelling the future also ends the wait for the trial.
        """
        made: Future[tuple[TokenMask, ...]] = Future()

        def build() -> None:
            if not made.set_running_or_notify_cancel():
                return
            try:
                made.set_result(self._machines(grammar, trial.result(), count))
            except BaseException as error:
                made.set_exception(error)

        def tried(_: Future[Sources]) -> None:
            if not trial.cancelled():
                self._builds.submit(build)

        made.add_done_callback(lambda done: done.cancelled() and trial.cancel())
        trial.add_done_callback(tried)
        return made

    def _check_model(self) -> None:
        if not self._end_token_ids:
            raise InvalidRequest("This model has no end token, and a grammar needs one to end with.", param="grammar")
        if not self._vocabulary.tokens_are_bytes:
            raise InvalidRequest(
                "This model's tokenizer cannot follow a grammar.",
                why="Its tokens are no strings of bytes.",
                param="grammar",
            )

    def tried(self, grammar: Grammar, guard: GrammarGuard, limit_s: float) -> Sources:
        """Returns the sources of a grammar in llguidance's language, after a trial. The grammar is checked in the
        calling thread, one of the threads of Trials, and compiled in the guard's process. limit_s: the most seconds of
        that process."""
        sources = self._found(grammar)  # another request may have stored the sources since this one came
        if sources is None:
            source = guard.source(grammar.kind, checked(grammar), limit_s)
            more = bounded(source)
            sources = (source,) if more is None else (source, more)
            if grammar.thought is not None:
                sources = tuple(after_thought(each, grammar.thought) for each in sources)
            self._keep(grammar, sources)
        return sources

    def _machines(self, grammar: Grammar, sources: Sources, count: int) -> tuple[TokenMask, ...]:
        """Compiles `count` GrammarMachines in this process. It is safe, because the trial process has already compiled
        the grammar within its limits of time and memory. Raises InvalidRequest."""
        vocabulary, limits = self._tokens.vocabulary(), self._library_limits()
        made: list[TokenMask] = []
        until_s, mask_s = time.thread_time() + self._limits.compile_s, 0.0
        for _ in range(count):
            matchers = [Matcher(vocabulary, source, limits) for source in sources]
            began_s = time.thread_time()
            for matcher in () if made else matchers:
                if matcher.mask() is None:
                    raise InvalidRequest(
                        f"The {grammar.kind.words} cannot be used: {in_users_terms(matcher.fault)}.", param="grammar"
                    )
            mask_s = mask_s if made else time.thread_time() - began_s
            made.append(GrammarMachine(matchers, mask_s))
            if time.thread_time() > until_s:
                raise InvalidRequest(
                    f"The {grammar.kind.words} takes too long to compile for {count} completions.", param="grammar"
                )
        return tuple(made)

    def opening(self, *, hard: bool) -> GuardOpening:
        """Returns the settings that a process for trials of grammars gets as its first message. hard: True for the
        process that tries grammars which need much work."""
        return GuardOpening(
            self._tokens.trial(),
            self._end_token_ids,
            self._library_limits(),
            self._limits.compile_s,
            self._limits.compile_bytes,
            HARD_NICENESS if hard else 0,
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

    def _found(self, grammar: Grammar) -> Sources | None:
        with self._lock:
            if grammar in self._kept:
                self._kept.move_to_end(grammar)
            return self._kept.get(grammar)

    def _keep(self, grammar: Grammar, sources: Sources) -> None:
        with self._lock:
            self._kept[grammar] = sources
            while len(self._kept) > self._limits.cached or self._kept_bytes() > self._limits.cached_bytes:
                self._kept.popitem(last=False)

    def _kept_bytes(self) -> int:
        return sum(len(grammar.text) + sum(map(len, sources)) for grammar, sources in self._kept.items())


class _TrialLane:
    """One of the two processes that compile new grammars on trial. It gives each grammar at most `limit_s` seconds of
    processor time.

    hard: False for the quick process: a grammar that takes too long raises TooHard and is tried again in the slow
    process. True for the slow process, which refuses such a grammar.
    """

    def __init__(self, compiler: GrammarCompiler, limit_s: float, *, hard: bool) -> None:
        self._compiler, self._limit_s, self._hard = compiler, limit_s, hard
        self.guard: GrammarGuard | None = None

    def start(self) -> None:
        if not self._hard:  # hard grammars are rare: they wait for their process
            self._own().start()

    def sources(self, grammar: Grammar) -> Sources:
        try:
            return self._compiler.tried(grammar, self._own(), self._limit_s)
        except TookTooMuch as error:
            if self._hard:
                raise
            self._own().start()
            raise TooHard from error

    def close(self) -> None:
        if self.guard is not None:
            self.guard.close()

    def _own(self) -> GrammarGuard:
        if self.guard is None:
            self.guard = GrammarGuard(self._compiler.opening(hard=self._hard))
        return self.guard
