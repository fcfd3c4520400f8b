"""Builds the compiler of a model's grammars, which a server prepares after its first answers."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from twostroke.assembly.machine.heap import trim
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.tokenizer import Tokenizer

DELAY_S = 1.0
"""The delay in seconds before the background work. Reading the vocabulary and starting a process take a second of
processor time for 262,144 tokens. The end of the start and the first answer should not share cores, and the
interpreter's lock, with this work."""


class GrammarsAhead:
    """Prepares the parts that the first grammar needs, in the background. A grammar that comes earlier prepares them at
    once.

    wanted: False for an engine without a server, which prepares them with the first grammar.
    """

    def __init__(self, compiler: GrammarCompiler, *, wanted: bool) -> None:
        self._compiler, self._wanted = compiler, wanted
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="twostroke-grammars", daemon=True)

    def start(self) -> None:
        """Begins the work DELAY_S seconds later."""
        if self._wanted:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread. Closing twice is harmless."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        if not self._stop.wait(DELAY_S):
            self._compiler.prepare(trim)


def grammars_of(
    tokenizer: Tokenizer, vocab_size: int, ends: frozenset[int], closing: ExitStack, *, serving: bool
) -> tuple[GrammarCompiler, GrammarsAhead]:
    """Returns the compiler, and the object that prepares it in the background once started. serving: whether to prepare
    it, because any request to a server may ask for a grammar."""
    made = GrammarCompiler(tokenizer, vocab_size, ends)
    closing.callback(made.close)
    ahead = GrammarsAhead(made, wanted=serving)
    closing.callback(ahead.close)
    return made, ahead
