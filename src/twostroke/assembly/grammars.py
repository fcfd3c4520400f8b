"""Builds the compiler of grammars (structured output) for a model. A server prepares it in the background after the
start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from twostroke.assembly.machine.heap import trim
from twostroke.system.starting import begun
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.tokenizer import Tokenizer

DELAY_S = 1.0
"""The delay in seconds before the background preparation begins. The preparation takes a second of processor time for
262,144 tokens. The delay keeps it from slowing the end of the start and the first answer."""


class GrammarsWhenAsked:
    """Prepares nothing ahead: the first request with a grammar makes the compiler prepare itself. An engine without a
    server uses this class."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler

    def start(self) -> None:
        """Does nothing here. GrammarsAhead begins to prepare the compiler in the background."""

    def close(self) -> None:
        """Ends the preparation that `start` has begun. Closing twice is harmless."""


class GrammarsAhead(GrammarsWhenAsked):
    """Prepares the compiler in the background, before a request needs it. A request with a grammar that comes earlier
    prepares it at once. A server uses this class, because its requests may ask for grammars."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        super().__init__(compiler)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="twostroke-grammars", daemon=True)

    def start(self) -> None:
        """Begins to prepare the compiler DELAY_S seconds later. Where the system begins no more threads, the first
        request with a grammar prepares it."""
        begun(self._thread)

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        if not self._stop.wait(DELAY_S):
            self._compiler.prepare(trim)


Preparation = Callable[[GrammarCompiler], GrammarsWhenAsked]


def grammars_of(
    tokenizer: Tokenizer, vocab_size: int, ends: frozenset[int], closing: ExitStack, preparation: Preparation
) -> tuple[GrammarCompiler, GrammarsWhenAsked]:
    """Returns the grammar compiler, and the object that prepares it for the vocabulary: a server calls `start`, which
    does this in the background. preparation: the class of that object."""
    made = GrammarCompiler(tokenizer, vocab_size, ends)
    closing.callback(made.close)
    ahead = preparation(made)
    closing.callback(ahead.close)
    return made, ahead
