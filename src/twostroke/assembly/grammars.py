"""The compiler of a model's grammars, made ready while the weights of a server are loaded."""

from __future__ import annotations

from contextlib import ExitStack

from twostroke.assembly.machine.heap import trim
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.tokenizer import Tokenizer


def grammars_of(
    tokenizer: Tokenizer, vocab_size: int, ends: frozenset[int], closing: ExitStack, *, serving: bool
) -> GrammarCompiler:
    """serving: any request may ask for a form, so what grammars need is made at once, in the background."""
    made = GrammarCompiler(tokenizer, vocab_size, ends)
    closing.callback(made.close)
    if serving:
        made.prepare(trim)
    return made
