"""The list of tokens in a GGUF file: their texts, their types, and the keys that say which of them are special.

Knows: the keys tokenizer.ggml.*.
Must not know: the format of tokenizer.json, what tokens are used for.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.header import Value, corrupt, texts_of

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"

END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>",
    "<|return|>", "<|call|>",
)  # fmt: skip
"""Control tokens that end an answer whatever the file says: files name one end, and many models have two."""


class TokenList(Struct, frozen=True):
    """What a file says of its tokens. types: a number of each, see NORMAL and what follows."""

    tokens: list[str]
    types: list[int]
    values: Mapping[str, Value]
    place: str

    @classmethod
    def read(cls, values: Mapping[str, Value], place: str) -> TokenList:
        """Raises CorruptModel where a list is missing or has another length."""
        tokens = texts_of(values, PREFIX + "tokens", place)
        if not tokens:
            raise CorruptModel(
                f"{place} holds no tokenizer.",
                why="It has no tokenizer.ggml.tokens.",
                fix="Use a file of a whole model.",
            )
        types = values.get(PREFIX + "token_type")
        if types is None:
            return cls(tokens, [NORMAL] * len(tokens), values, place)
        if not isinstance(types, np.ndarray) or len(types) != len(tokens) or types.dtype.kind not in "iu":
            raise corrupt(place, "tokenizer.ggml.token_type is not one whole number for each token")
        return cls(tokens, [int(number) for number in types], values, place)

    def id_of(self, name: str) -> int | None:
        """The id under a key such as bos_token_id; None where there is none. Ids beyond the vocabulary mean none."""
        found = self.values.get(PREFIX + name)
        return found if type(found) is int and 0 <= found < len(self.tokens) else None

    def truth(self, name: str, absent: bool) -> bool:
        """A truth value."""
        found = self.values.get(PREFIX + name, absent)
        if not isinstance(found, bool):
            raise corrupt(self.place, f"{PREFIX}{name} is neither true nor false")
        return found

    def text_of(self, name: str) -> str | None:
        """The text of the token under a key."""
        found = self.id_of(name)
        return None if found is None else self.tokens[found]

    @property
    def end_ids(self) -> list[int]:
        """Tokens that end an answer: the file's own, and control tokens that always do."""
        named = {self.id_of(f"{name}_token_id") for name in ("eos", "eot", "eom")} - {None}
        known = {i for i, t in enumerate(self.tokens) if self.types[i] == CONTROL and t in END_TEXTS}
        return sorted(known.union(i for i in named if i is not None))
