"""Turns texts into token ids, with the special tokens that a tokenizer puts around one text or two. Texts are cut where
a request asks for it.

Control tokens in a text are text, unless the caller trusts the text: documents may come from anyone.
"""

from __future__ import annotations

from typing import Protocol

from twostroke.text.frame import Frame
from twostroke.text.templates.quoting import Quoting, Spans
from twostroke.types.errors import InvalidRequest


class TextTokenizer(Protocol):
    """The part of Tokenizer that this module needs."""

    def encode_rendered(self, text: str, context_tokens: int | None = None, *, quoted: Spans = ()) -> list[int]:
        """Returns token ids without special tokens around them."""

    def quoting(self) -> Quoting:
        """Returns an object that finds the control tokens in one text."""

    def frame(self, pair: bool) -> Frame:
        """Returns the special tokens around one text, or around a pair."""

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token as written in the vocabulary; None for a token that it does not have."""


def body_of(
    tokenizer: TextTokenizer, text: str, *, before: str = "", after: str = "", trusted: bool = False
) -> list[int]:
    """Returns the token ids of before + text + after, without special tokens around them. trusted: whether control
    tokens in `text` count as control tokens; in `before` and `after` they always do."""
    if trusted:
        return tokenizer.encode_rendered(before + text + after)
    quoting = tokenizer.quoting()
    rendered = quoting.shown(before + quoting.hide(text) + after)
    return tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted)


def framed(frame: Frame, body: list[int], most: int | None) -> list[int]:
    """Returns one text with its special tokens. The text is cut so that the result has at most `most` tokens."""
    return [*frame.first, *_cut(body, most, frame.size), *frame.last]


def framed_pair(frame: Frame, first: list[int], second: list[int], most: int | None) -> list[int]:
    """Returns a pair with its special tokens. The second text is cut so that the result has at most `most` tokens."""
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
