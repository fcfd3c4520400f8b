"""The special tokens that a tokenizer puts around one text, or around a pair of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import tokenizers

PROBE = "a"


class Frame(Struct, frozen=True):
    """The special tokens that a tokenizer puts around one text or a pair of texts. first, middle, last: token ids
    before, between and after the texts; `middle` is empty for one text.

    tells_apart: True where the second text has a token type of its own. middle_of_first: the number of tokens of
    `middle` that have the type of the first text.
    """

    first: tuple[int, ...] = ()
    middle: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    tells_apart: bool = False
    middle_of_first: int = 0

    @property
    def size(self) -> int:
        """The number of special tokens."""
        return len(self.first) + len(self.middle) + len(self.last)


def frame_of(library: tokenizers.Tokenizer, pair: bool) -> Frame:
    """Finds which special tokens a tokenizer puts around one text, or around and between two texts, by encoding short
    texts. library: the tokenizer. pair: True for two texts."""
    made = library.encode(PROBE, PROBE if pair else None)
    owners, ids, types = made.sequence_ids, made.ids, made.type_ids
    firsts = [place for place, owner in enumerate(owners) if owner == 0]
    ends = [place for place, owner in enumerate(owners) if owner is not None]
    if not firsts:
        return Frame()
    middle_begin, last_begin = firsts[-1] + 1, ends[-1] + 1
    seconds = [place for place, owner in enumerate(owners) if owner == 1]
    if not seconds:
        return Frame(tuple(ids[: firsts[0]]), (), tuple(ids[last_begin:]))
    middle = range(middle_begin, seconds[0])
    return Frame(
        tuple(ids[: firsts[0]]),
        tuple(ids[place] for place in middle),
        tuple(ids[last_begin:]),
        types[seconds[0]] != types[firsts[0]],
        sum(types[place] == types[firsts[0]] for place in middle),
    )
