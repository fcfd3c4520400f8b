"""The list of tokens in a GGUF file: their texts, their types, and the keys that name the special ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from twostroke.types.errors import CorruptModel
from twostroke.weights.gguf.header import Value, corrupt, texts_of

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"

END_TEXTS = frozenset((
    "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>",
    "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<|eot|>", "<|eom|>", "<turn|>", "<|tool_response>", "[e~[",
    "[EOT]", "[EOS]", "<end_of_utterance>", "</assistant>", "<SPECIAL_12>", "<seed:eos>",
))  # fmt: skip
"""Tokens that end an answer whatever the file names: files name one end, and many models have two. They are control
tokens also in files of older converters, which mark some of them as normal text."""
END_OF_MESSAGE = "<|end|>"
SEVERAL_MESSAGES = frozenset(("<|call|>", "<|calls|>"))
"""In a vocabulary with one of these, an answer is several messages, and END_OF_MESSAGE ends one of them."""
ROLES_OF_GLM = frozenset(("<|user|>", "<|observation|>"))
GLM = "[gMASK]"
"""A token of models that end an answer with the mark of the next turn's role, in place of an end token."""


class TokenList(Struct, frozen=True):
    """The tokens in a file. types: a number for each token, see NORMAL and the constants after it."""

    tokens: list[str]
    types: list[int]
    values: Mapping[str, Value]
    place: str

    @classmethod
    def read(cls, values: Mapping[str, Value], place: str) -> TokenList:
        """Reads the tokens of a file. Raises CorruptModel where a list is missing or has another length."""
        tokens = texts_of(values, PREFIX + "tokens", place)
        if not tokens:
            raise CorruptModel(
                f"{place} holds no tokenizer.",
                why="It has no tokenizer.ggml.tokens.",
                fix="Use a file of a whole model.",
            )
        types = values.get(PREFIX + "token_type")
        if types is None:
            return cls(tokens, _corrected(tokens, [NORMAL] * len(tokens)), values, place)
        if not isinstance(types, np.ndarray) or len(types) != len(tokens) or types.dtype.kind not in "iu":
            raise corrupt(place, "tokenizer.ggml.token_type is not one whole number for each token")
        return cls(tokens, _corrected(tokens, types.tolist()), values, place)

    def id_of(self, name: str) -> int | None:
        """Returns the id under a key such as bos_token_id; None where there is none, or where the id is beyond the
        vocabulary."""
        found = self.values.get(PREFIX + name)
        return found if type(found) is int and 0 <= found < len(self.tokens) else None

    def truth(self, name: str, absent: bool) -> bool:
        """Returns a truth value; `absent` where the file lacks the key."""
        found = self.values.get(PREFIX + name, absent)
        if not isinstance(found, bool):
            raise corrupt(self.place, f"{PREFIX}{name} is neither true nor false")
        return found

    def text_of(self, name: str) -> str | None:
        """Returns the text of the token under a key; None where there is none."""
        found = self.id_of(name)
        return None if found is None else self.tokens[found]

    @property
    def end_ids(self) -> list[int]:
        """Returns the tokens that end an answer: those that the file names, and control tokens that always end one."""
        named = {self.id_of(f"{name}_token_id") for name in ("eos", "eot", "eom")} - {None}
        known = _ends_in(self.tokens)
        own = {i for i, t in enumerate(self.tokens) if self.types[i] == CONTROL and t in known}
        return sorted(own.union(i for i in named if i is not None))


def _ends_in(tokens: list[str]) -> frozenset[str]:
    """Returns the texts of this vocabulary that end an answer."""
    there = (END_TEXTS | SEVERAL_MESSAGES | ROLES_OF_GLM | {END_OF_MESSAGE, GLM}).intersection(tokens)
    found = there & END_TEXTS
    if not there & SEVERAL_MESSAGES:
        found |= there & {END_OF_MESSAGE}
    return found | (there & ROLES_OF_GLM if GLM in there else frozenset())


def _corrected(tokens: list[str], types: list[int]) -> list[int]:
    """Returns the types, with every token that ends an answer or a message as a control token."""
    ends = END_TEXTS | {END_OF_MESSAGE}
    for place in [place for place, text in enumerate(tokens) if text in ends]:
        if types[place] in (NORMAL, USER_DEFINED):
            types[place] = CONTROL
    return types
