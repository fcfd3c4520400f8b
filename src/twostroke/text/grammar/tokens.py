"""The vocabulary as llguidance wants it: the bytes of each token, and a tokenizer for forced text.

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
    bos_id: int | None

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token, b"" for an id without one."""

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of text; special tokens written out become their ids."""


class _Tokens:
    """The shape that llguidance's TokenizerWrapper reads."""

    def __init__(self, vocabulary: GrammarVocabulary, vocab_size: int, end_token_id: int) -> None:
        self._vocabulary = vocabulary
        self.tokens = [vocabulary.token_bytes(token_id) for token_id in range(vocab_size)]
        self.special_token_ids = sorted(i for i in vocabulary.special_ids if i < vocab_size)
        self.eos_token_id = end_token_id
        self.bos_token_id = vocabulary.bos_id
        hidden = vocabulary.special_ids
        self._ids = {token: i for i, token in enumerate(self.tokens) if token and i not in hidden}
        self._longest_bytes = max(map(len, self._ids), default=1)

    def __call__(self, raw: bytes) -> list[int]:
        """How the model would write a text that the grammar forces: never with a special token, and byte for byte."""
        ids = self._usual(raw)
        hidden = self._vocabulary.special_ids
        if any(i in hidden or i >= len(self.tokens) for i in ids) or b"".join(self.tokens[i] for i in ids) != raw:
            return self._longest_first(raw)
        return ids

    def _usual(self, raw: bytes) -> list[int]:
        try:
            return self._vocabulary.encode_rendered(raw.decode("utf-8"))
        except Exception:  # half a character, or a text that the tokenizer refuses
            return []

    def _longest_first(self, raw: bytes) -> list[int]:
        ids: list[int] = []
        place = 0
        while place < len(raw):
            ends = range(min(len(raw), place + self._longest_bytes), place, -1)
            end = next((end for end in ends if raw[place:end] in self._ids), None)
            if end is None:
                return ids  # no token writes this byte; the grammar's own trie says so, too
            ids.append(self._ids[raw[place:end]])
            place = end
        return ids


def grammar_tokens(
    vocabulary: GrammarVocabulary, vocab_size: int, end_token_ids: Sequence[int]
) -> llguidance.LLTokenizer:
    """vocab_size: rows of the model's logits; ids that the tokenizer lacks are never allowed. Takes a while: once."""
    import llguidance

    ends = sorted(end_token_ids)
    wrapper = llguidance.TokenizerWrapper(_Tokens(vocabulary, vocab_size, ends[0]))
    return llguidance.LLTokenizer(wrapper, eos_token=ends)
