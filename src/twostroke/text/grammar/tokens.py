"""The vocabulary as llguidance wants it: the bytes of each token.

Knows: token bytes, special tokens.
Must not know: grammars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import llguidance


class GrammarVocabulary(Protocol):
    """What grammars need of a tokenizer."""

    special_ids: frozenset[int]
    tokens_are_bytes: bool

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token, b"" for an id without one."""


class Tokens:
    """The shape that llguidance's TokenizerWrapper reads.

    vocab_size: rows of the model's logits; ids that the tokenizer lacks are never allowed.
    """

    def __init__(self, vocabulary: GrammarVocabulary, vocab_size: int, end_token_ids: Sequence[int]) -> None:
        self.tokens = [vocabulary.token_bytes(token_id) for token_id in range(vocab_size)]
        self.special_token_ids = sorted(i for i in vocabulary.special_ids if i < vocab_size)
        self.eos_token_id = min(end_token_ids)
        self.bos_token_id = None

    def __call__(self, _raw: bytes) -> list[int]:
        """Never asked: no text is forced (guard_child.OPTIONS)."""
        return []


def grammar_tokens(tokens: Tokens, end_token_ids: Sequence[int]) -> llguidance.LLTokenizer:
    """Takes a while: once."""
    import llguidance

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(tokens), eos_token=list(end_token_ids))
