"""The vocabulary as llguidance wants it: the bytes of each token, and a tokenizer for forced text.

Knows: token bytes, special tokens.
Must not know: grammars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from twostroke.text.grammar.guard_child import longest_first

if TYPE_CHECKING:
    import llguidance


class GrammarVocabulary(Protocol):
    """What grammars need of a tokenizer."""

    special_ids: frozenset[int]
    bos_id: int | None
    tokens_are_bytes: bool

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token, b"" for an id without one."""

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of text; special tokens written out become their ids."""


class Tokens:
    """The shape that llguidance's TokenizerWrapper reads.

    vocab_size: rows of the model's logits; ids that the tokenizer lacks are never allowed.
    """

    def __init__(self, vocabulary: GrammarVocabulary, vocab_size: int, end_token_ids: Sequence[int]) -> None:
        self._vocabulary = vocabulary
        self.tokens = [vocabulary.token_bytes(token_id) for token_id in range(vocab_size)]
        self.special_token_ids = sorted(i for i in vocabulary.special_ids if i < vocab_size)
        self.eos_token_id = min(end_token_ids)
        self.bos_token_id = vocabulary.bos_id
        hidden = vocabulary.special_ids
        self._ids = {token: i for i, token in enumerate(self.tokens) if token and i not in hidden}

    def __call__(self, raw: bytes) -> list[int]:
        """How the model would write a text that the grammar forces: never with a special token, and byte for byte."""
        ids = self._usual(raw)
        hidden = self._vocabulary.special_ids
        if any(i in hidden or i >= len(self.tokens) for i in ids) or b"".join(self.tokens[i] for i in ids) != raw:
            return longest_first(raw, self._ids)
        return ids

    def _usual(self, raw: bytes) -> list[int]:
        try:
            return self._vocabulary.encode_rendered(raw.decode("utf-8"))
        except Exception:  # half a character, or a text that the tokenizer refuses
            return []


def grammar_tokens(tokens: Tokens, end_token_ids: Sequence[int]) -> llguidance.LLTokenizer:
    """Takes a while: once."""
    import llguidance

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(tokens), eos_token=list(end_token_ids))
