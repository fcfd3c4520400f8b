"""Texts to token ids, with the special tokens that a tokenizer puts around one text or two, cut where that is asked.

Control tokens in a text are text, unless the caller trusts it: documents come from anywhere.
"""

from __future__ import annotations

from typing import Protocol

from twostroke.text.frame import Frame
from twostroke.text.quoting import Quoting, Spans
from twostroke.types.errors import InvalidRequest


class TextTokenizer(Protocol):
    """The part of Tokenizer that texts need."""

    def encode_rendered(self, text: str, context_tokens: int | None = None, *, quoted: Spans = ()) -> list[int]:
        """Token ids without special tokens around them."""

    def quoting(self) -> Quoting:
        """An object that finds the control tokens in one text."""

    def frame(self, pair: bool) -> Frame:
        """The special tokens around one text, or around a pair."""

    def id_of(self, token: str) -> int | None:
        """The id of a token as written in the vocabulary."""


def body_of(
    tokenizer: TextTokenizer, text: str, *, before: str = "", after: str = "", trusted: bool = False
) -> list[int]:
    """Token ids of before + text + after, without special tokens around them. trusted: control tokens in `text` count
    as such; in the two others they always do."""
    if trusted:
        return tokenizer.encode_rendered(before + text + after)
    quoting = tokenizer.quoting()
    rendered = quoting.shown(before + quoting.hide(text) + after)
    return tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted)


def framed(frame: Frame, body: list[int], most: int | None) -> list[int]:
    """One text with its special tokens; the text is cut so that all are `most` tokens at most."""
    return [*frame.first, *_cut(body, most, frame.size), *frame.last]


def framed_pair(frame: Frame, first: list[int], second: list[int], most: int | None) -> list[int]:
    """A pair with its special tokens; the second text is cut so that all are `most` tokens at most."""
    return [*frame.first, *first, *frame.middle, *_cut(second, most, frame.size + len(first)), *frame.last]


def _cut(body: list[int], most: int | None, taken: int) -> list[int]:
    if most is None or taken + len(body) <= most:
        return body
    if taken >= most:
        raise InvalidRequest(
            f"truncate_prompt_tokens {most:,} leaves no room for the text.",
            param="truncate_prompt_tokens",
            why=f"{taken:,} tokens stand before or around it.",
            fix="Send a larger number.",
        )
    return body[: most - taken]
