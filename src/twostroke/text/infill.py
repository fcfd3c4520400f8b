"""Filling in the middle: the tokens that a vocabulary has for this, and the prompt that they form with the texts around
the gap.

    tokens = InfillTokens.find(tokenizer)
    ids = tokens.prompt(Middle(prefix_ids, suffix_ids), room=1000).token_ids
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

ROLES: Mapping[str, tuple[str, ...]] = {
    "pre": (
        *("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"),
        *("<|code_prefix|>", "[PREFIX]"),
    ),
    "suf": (
        *("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"),
        *("<|code_suffix|>", "[SUFFIX]"),
    ),
    "mid": (
        *("<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"),
        *("<|code_middle|>", "[MIDDLE]"),
    ),
    "rep": ("<|fim_repo|>", "<|repo_name|>", "<repo_name>", "<reponame>", "<fim-repo>", "<REPO>"),
    "sep": ("<|file_sep|>", "<file_sep>"),
    "pad": ("<|fim_pad|>", "<fim_pad>", "<fim-pad>", "<PAD>"),
    "eot": ("<EOT>", "▁<EOT>"),
}
"""The names of each role's token in published vocabularies. A GGUF file may name the token of a role itself."""
SUFFIX_FIRST = "[SUFFIX]"
"""The suffix token of vocabularies whose models read the suffix first, then the prefix, and have no token for the
middle."""
PREFIX_PARTS, ALL_PARTS = 3, 4
"""The share of the room for both texts that the prefix gets: PREFIX_PARTS of ALL_PARTS."""
REPOSITORY = "twostroke"
"""The name of the repository that stands in prompts with several files. It is always the same, because clients send no
name."""


class Known(Protocol):
    """The part of a tokenizer that this module needs."""

    @property
    def special_texts(self) -> Mapping[str, str]:
        """The texts of special tokens by their roles, such as bos_token."""

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token; None where the vocabulary does not have it."""


class OtherFile(Struct, frozen=True):
    """A file that may help the model. name: the tokens of its name with a line end. text: the tokens of its text."""

    name: Sequence[int]
    text: Sequence[int]


class Middle(Struct, frozen=True):
    """A request to fill in the middle of a text, in token ids: the texts before and after the gap. begun: the first
    tokens of the wanted text, which the client has given. others: more files that may help the model. repository: the
    tokens of the repository's name."""

    prefix: Sequence[int]
    suffix: Sequence[int]
    begun: Sequence[int] = ()
    others: Sequence[OtherFile] = ()
    repository: Sequence[int] = ()


class InfillPrompt(Struct, frozen=True):
    """A prompt for filling in the middle. left_out: the texts that did not fit, such as other files, in words for a
    note to the client."""

    token_ids: list[int]
    left_out: tuple[str, ...] = ()


class InfillTokens(Struct, frozen=True):
    """The special tokens for filling in the middle, by their roles; None where the vocabulary has none. suffix_first:
    True where models read the suffix first, see SUFFIX_FIRST."""

    pre: int
    suf: int
    mid: int | None
    rep: int | None
    sep: int | None
    ends: frozenset[int]
    suffix_first: bool = False

    @classmethod
    def find(cls, tokenizer: Known) -> InfillTokens | None:
        """Returns the special tokens that a vocabulary has for filling in the middle; None where it lacks them."""
        found = {role: _token_of(role, tokenizer) for role in ROLES}
        first = tokenizer.id_of(SUFFIX_FIRST) is not None and found["suf"] == tokenizer.id_of(SUFFIX_FIRST)
        pre, suf, mid = found["pre"], found["suf"], found["mid"]
        if pre is None or suf is None or (mid is None and not first):
            return None
        ends = frozenset(each for each in found.values() if each is not None)
        return cls(pre, suf, None if first else mid, found["rep"], found["sep"], ends, first)

    def prompt(self, asked: Middle, room: int) -> InfillPrompt:
        """Returns the prompt in at most `room` tokens. Where there is too little room, other files are left out first,
        then the prefix's beginning and the suffix's end."""
        said: list[str] = []
        texts = max(0, room - len(asked.begun) - 3)
        prefix, suffix = asked.prefix, asked.suffix
        if len(prefix) + len(suffix) > texts:
            for_suffix = max(texts - texts * PREFIX_PARTS // ALL_PARTS, texts - len(prefix))
            suffix = suffix[:for_suffix]
            prefix = prefix[max(0, len(prefix) - (texts - len(suffix))) :]
            said.append("the prefix's beginning or the suffix's end was left out: there is no room for both")
        others, dropped = self._others(asked, texts - len(prefix) - len(suffix))
        if dropped:
            said.append(f"{dropped} other files were left out: there is no room for them")
        before, after = [self.pre, *prefix], [self.suf, *suffix]
        both = [*after, *before] if self.suffix_first else [*before, *after]
        middle = [] if self.mid is None else [self.mid]
        return InfillPrompt([*others, *both, *middle, *asked.begun], tuple(said))

    def _others(self, asked: Middle, room: int) -> tuple[list[int], int]:
        """Returns the tokens of the files that come before the text with the gap, and the number of files that are left
        out. Where there is no room for all, the first files are left out."""
        made: list[list[int]] = []
        head = [self.rep, *asked.repository] if self.rep is not None and self.sep is not None else []
        left = room - len(head)
        for each in reversed(asked.others):
            piece = [*each.text] if self.sep is None else [self.sep, *each.name, *each.text]
            if len(piece) > left:
                break
            made.insert(0, piece)
            left -= len(piece)
        tokens = [token for piece in made for token in piece]
        return [*head, *tokens] if made else [], len(asked.others) - len(made)


def _token_of(role: str, tokenizer: Known) -> int | None:
    named = tokenizer.special_texts.get(f"fim_{role}_token")
    names = (named, *ROLES[role]) if named else ROLES[role]
    return next((found for name in names if (found := tokenizer.id_of(name)) is not None), None)
