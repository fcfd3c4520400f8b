"""Keeps control tokens that a client wrote apart from those of the template, in one rendered prompt.

A client's text may hold the texts of control tokens. Before the template sees the text, each of them is replaced by a
placeholder that cannot be guessed. Afterwards the texts are put back. Their places are then known: they are quoted, and
become ordinary tokens.

    quoting = tokenizer.quoting()
    prompt = quoting.shown(template.render(messages, each_text=quoting.hide))
    ids = tokenizer.encode_rendered(prompt.text, quoted=prompt.quoted)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from msgspec import Struct

from twostroke.text.templates.pictures import PlacedImages

Spans = tuple[tuple[int, int], ...]
"""Pairs (start, end) of the parts of a prompt's text that are quoted: control tokens that a client wrote, to be
tokenized as ordinary text. They are in order, and no two overlap."""

MARK_DIGITS, NUMBER_DIGITS = 24, 6


class Rendered(Struct, frozen=True):
    """A prompt's text. quoted: the places of control tokens' texts that a client wrote. pictures: the prompt's images.
    """

    text: str
    quoted: Spans = ()
    pictures: PlacedImages | None = None


def nothing_found(_text: str) -> Iterable[tuple[int, int]]:
    """Finds nothing: the `find` function for texts whose control tokens keep their meaning."""
    return ()


class Quoting:
    """Replaces control tokens that clients wrote by placeholders while one prompt is rendered, and puts them back. Only
    one thread may use it.

    find: returns the places of control tokens' texts in a text. always: True returns one empty span where nothing was
    found; the prompt is then still tokenized like a text with quoted parts.

    Placeholders are digits, which no filter of a template (upper, title, tojson) changes.
    """

    def __init__(self, find: Callable[[str], Iterable[tuple[int, int]]] = nothing_found, always: bool = False) -> None:
        self._find = find
        self._always = always
        self._mark = str(secrets.randbelow(9 * 10 ** (MARK_DIGITS - 1)) + 10 ** (MARK_DIGITS - 1))
        self._numbers: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def hide(self, text: str) -> str:
        """Returns a client's text with placeholders in place of the control tokens' texts."""
        pieces, last = [], 0
        for start, end in self._find(text):
            pieces += [text[last:start], self._mark, self._number(text[start:end])]
            last = end
        return "".join([*pieces, text[last:]]) if pieces else text

    def shown(self, text: str) -> Rendered:
        """Returns a rendered text in which the original texts replace the placeholders."""
        if not self._texts:
            return Rendered(text, ((0, 0),) if self._always else ())
        first, *others = text.split(self._mark)
        pieces, quoted, length = [first], [], len(first)
        for other in others:
            hidden = self._texts.get(other[:NUMBER_DIGITS], "")
            rest = other[NUMBER_DIGITS:]
            quoted.append((length, length + len(hidden)))
            pieces += [hidden, rest]
            length += len(hidden) + len(rest)
        return Rendered("".join(pieces), tuple(quoted))

    def _number(self, text: str) -> str:
        number = self._numbers.setdefault(text, f"{len(self._numbers):0{NUMBER_DIGITS}}")
        self._texts[number] = text
        return number
