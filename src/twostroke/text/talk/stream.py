"""Text that arrives in pieces, and small readers of it.

A reader is a generator. It yields where it needs more text, and returns what it found. What it returns does not depend
on how the text was cut. A reader holds no place in the text across a `yield`: taken text is thrown away there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

_T = TypeVar("_T")
Reading = Generator[None, None, _T]
"""A reader that returns `_T`."""

Followed = Mapping[str, Sequence[str] | None]
"""Marks, and the marks of which one, or the end of the text, must come next; None where anything may."""

SPACES = " \t\r\n"
MOST_SPACES = 4096
"""White space that is looked over at one place: a longer run is text."""


class TextStream:
    """text[at:] is not read yet. ended: no more will come. kept: what was taken since `keep`. open: the marks that are
    looked for while everything else is said, and how; None where a reader waits for something else."""

    __slots__ = ("at", "ended", "kept", "open", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.kept: list[str] | None = None
        self.open: tuple[Marks, Callable[[str], object]] | None = None

    def passes(self, text: str) -> bool:
        """True where more text could begin no mark and was said at once: no reader had to look at it."""
        if self.open is None or not self.says_at_once(text, self.open[1]):
            return False
        self.open[1](text)
        return True

    def says_at_once(self, text: str, say: Callable[[str], object]) -> bool:
        """True where `passes` would say the text to this reader."""
        waits = self.open
        if waits is None or waits[1] is not say or self.at < len(self.text) or self.kept is not None:
            return False
        return not waits[0].may_begin(text)

    def add(self, text: str) -> None:
        """Take more text."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def take(self, length: int) -> str:
        """The next characters, which are read now."""
        taken = self.text[self.at : self.at + length]
        self.at += len(taken)
        if self.kept is not None:
            self.kept.append(taken)
        return taken

    def back(self, text: str) -> None:
        """Give back what was taken last, if no `yield` came since."""
        self.at -= len(text)
        if self.kept:
            self.kept.pop()

    def keep(self, first: str) -> None:
        """From now on remember what is taken, after `first`."""
        self.kept = [first]

    def forget(self) -> str:
        """Stop that; what was taken."""
        kept, self.kept = self.kept, None
        return "".join(kept or ())

    def peek(self) -> Reading[str]:
        """The next character, "" at the end."""
        while self.at >= len(self.text) and not self.ended:
            yield
        return self.text[self.at : self.at + 1]

    def space(self, also: str = "") -> Reading[None]:
        """Take white space, and the characters of `also`."""
        skipped = SPACES + also
        while True:
            place, end = self.at, len(self.text)
            while place < end and self.text[place] in skipped:
                place += 1
            self.take(place - self.at)
            if place < end or self.ended:
                return
            yield

    def starts(self, mark: str) -> Reading[bool]:
        """True where `mark` comes next; it is not taken."""
        while True:
            if self.text.startswith(mark, self.at):
                return True
            rest = self.text[self.at : self.at + len(mark)]
            if self.ended or not mark.startswith(rest):
                return False
            yield

    def match(self, mark: str) -> Reading[bool]:
        """True where `mark` came next; it is taken then."""
        found = yield from self.starts(mark)
        if found:
            self.take(len(mark))
        return found

    def until(self, marks: Marks, say: Callable[[str], object]) -> Reading[str]:
        """Say the text before the first mark; take the mark and return it, "" where the text ends before."""
        while True:
            text, at = self.text, self.at
            found = marks.search(text, at)
            start = found.start() if found else marks.held_from(text, at)
            if found and not self.ended and marks.may_grow(text, start):
                found = None
            if start > at:
                say(self.take(start - at))
            if found:
                return self.take(found.end() - found.start())
            if self.ended:
                say(self.take(len(text) - start))
                return ""
            self.open = (marks, say)
            yield
            self.open = None

    def follows(self, marks: Sequence[str]) -> Reading[bool]:
        """True where one of the marks, or the end of the text, comes after white space; nothing is taken."""
        while True:
            rest = self.text[self.at : self.at + MOST_SPACES].lstrip(SPACES)
            if any(map(rest.startswith, marks)):
                return True
            if len(self.text) - self.at >= MOST_SPACES or not any(mark.startswith(rest) for mark in ("", *marks)):
                return False
            if self.ended:
                return True
            yield

    def until_followed(self, marks: Followed, say: Callable[[str], object]) -> Reading[str]:
        """Like `until`. A mark counts where one of its followers comes next; any other one is text."""
        looked_for = marks_of(tuple(marks))
        while True:
            mark = yield from self.until(looked_for, say)
            followers = marks.get(mark)
            if not mark or followers is None or (yield from self.follows(followers)):
                return mark
            say(mark)

    def word(self, pattern: re.Pattern[str], most: int) -> Reading[str]:
        """What matches the pattern of single characters, at most `most` of them; "" where there are more."""
        made: list[str] = []
        length = 0
        while True:
            found = pattern.match(self.text, self.at)
            taken = self.take(found.end() - self.at if found else 0)
            made.append(taken)
            length += len(taken)
            if length > most:
                return ""
            if self.at < len(self.text) or self.ended:
                return "".join(made)
            yield


class Marks:
    """Texts that are looked for at once: the first one counts, and of two at one place the longer one."""

    def __init__(self, marks: Sequence[str]) -> None:
        self.marks = tuple(sorted({mark for mark in marks if mark}, key=lambda mark: (-len(mark), mark)))
        self._beginnings = frozenset(mark[:end] for mark in self.marks for end in range(1, len(mark)))
        self._firsts = frozenset(mark[0] for mark in self.marks)
        self._longest = max(map(len, self.marks), default=0)
        self.search = re.compile("|".join(map(re.escape, self.marks)) or r"(?!)").search
        firsts = "".join(map(re.escape, sorted(self._firsts)))
        self.may_begin = re.compile(f"[{firsts}]" if firsts else r"(?!)").search

    def held_from(self, text: str, at: int) -> int:
        """Where the end of the text begins that may be the beginning of a mark."""
        first = max(at, len(text) - self._longest + 1)
        if self._firsts.isdisjoint(text[first:]):
            return len(text)
        for place in range(first, len(text)):
            if text[place] in self._firsts and text[place:] in self._beginnings:
                return place
        return len(text)

    def may_grow(self, text: str, start: int) -> bool:
        """True where a longer mark may still come of the text from `start` on."""
        return len(text) - start < self._longest and text[start:] in self._beginnings


@lru_cache(maxsize=512)
def marks_of(marks: tuple[str, ...]) -> Marks:
    """Marks, made once for each set of texts."""
    return Marks(marks)
