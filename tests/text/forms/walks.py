"""Walks through a compiled grammar: whether it takes a text, and random texts that it takes."""

from __future__ import annotations

import random

from tests.text.grammar.test_grammar import allowed
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.grammar import Grammar


class Walker:
    """One compiler and its tokenizer."""

    def __init__(self, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
        self.compiler, self._ends = compiler, tokenizer.end_token_ids
        self.bytes = {i: tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)}
        self._ids = {row: i for i, row in self.bytes.items() if len(row) == 1 and i not in tokenizer.special_ids}
        self._closing = {i for i, row in self.bytes.items() if row in (b'"', b"}", b"]", b",")}

    def takes(self, grammar: Grammar, text: str) -> bool:
        """Whether the text, byte by byte, is a whole answer."""
        machine = self.compiler.compile(grammar)
        for byte in text.encode():
            token_id = self._ids[bytes([byte])]
            if token_id not in allowed(machine):
                return False
            machine.feed(token_id)
        return bool(allowed(machine) & self._ends)

    def written(self, grammar: Grammar, seed: int, most: int = 600, close: float = 0.3) -> str:
        """A random answer. close: how often a bracket, a quote or a comma is written where one may be."""
        machine, dice, tokens = self.compiler.compile(grammar), random.Random(seed), list[int]()
        while len(tokens) < most:
            may = allowed(machine)
            if may & self._ends:
                return b"".join(map(self.bytes.__getitem__, tokens)).decode()
            closing = may & self._closing
            tokens.append(dice.choice(sorted(closing if closing and dice.random() < close else may)))
            machine.feed(tokens[-1])
        raise AssertionError(f"no end after {most} tokens: {b''.join(map(self.bytes.__getitem__, tokens))[:300]!r}")
