"""Text that arrives in pieces, and small readers of it.

A reader is a generator. It yields where it needs more text, and returns its result, which does not depend on how the
text was cut. A reader keeps no position in the text across a `yield`, because text that was taken is thrown away there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

_T = TypeVar("_T")
Reading = Generator[None, None, _T]
"""The type of a reader of text: a generator that yields whenever it needs more text, and in the end returns a `_T`."""

Followed = Mapping[str, Sequence[str] | None]
"""Maps each mark to the marks that may follow it. A mark counts only where one of these, or the end of the text, comes
next. None means that anything may follow."""

SPACES = " \t\r\n"
MOST_SPACES = 4096
"""The most characters of white space that are skipped at one place: a longer run counts as text."""


class TextStream:
    """Text that arrives in pieces, and the position up to which it is read: text[at:] is not read yet. ended: True when
    no more text will come. kept: the text that was read since `keep` was called; None while it is not recorded.

    open: set while a reader passes all text on until it finds one of some marks. It has these marks and the function
    that gets the text.
    """

    __slots__ = ("at", "ended", "kept", "open", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.kept: list[str] | None = None
        self.open: tuple[Marks, Callable[[str], object]] | None = None

    def passes(self, text: str) -> bool:
        """Sends new text on at once where a reader only waits for a mark that cannot begin in this text, and returns
        True. Returns False where a reader must look at the text."""
        if self.open is None or not self.says_at_once(text, self.open[1]):
            return False
        self.open[1](text)
        return True

    def says_at_once(self, text: str, say: Callable[[str], object]) -> bool:
        """Returns True where the new text can go to `say` without a reader. A reader must be passing all text on to
        `say` until a mark comes, and the new text must contain no beginning of such a mark."""
        waits = self.open
        if waits is None or waits[1] is not say or self.at < len(self.text) or self.kept is not None:
            return False
        return not waits[0].may_begin(text)

    def add(self, text: str) -> None:
        """Take more text."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def take(self, length: int) -> str:
        """Reads the next `length` characters and returns them."""
        taken = self.text[self.at : self.at + length]
        self.at += len(taken)
        if self.kept is not None:
            self.kept.append(taken)
        return taken

    def back(self, text: str) -> None:
        """Makes the text that was read last unread again. The caller must not have yielded since, because a `yield`
        drops the text that was read."""
        self.at -= len(text)
        if self.kept:
            self.kept.pop()

    def keep(self, first: str) -> None:
        """Begins to record the text that readers take, so that `forget` can return it if the text is no call after all.
        first: a text that was already taken, such as a mark."""
        self.kept = [first]

    def forget(self) -> str:
        """Ends the recording that `keep` began, and returns the recorded text; "" where nothing was recorded."""
        kept, self.kept = self.kept, None
        return "".join(kept or ())

    def peek(self) -> Reading[str]:
        """Returns the next character; "" at the end."""
        while self.at >= len(self.text) and not self.ended:
            yield
        return self.text[self.at : self.at + 1]

    def space(self, also: str = "") -> Reading[None]:
        """Reads past white space and the characters of `also`, up to the first other character or the end of the text.
        """
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
        """Returns True where `mark` comes next; the mark is not taken."""
        while True:
            if self.text.startswith(mark, self.at):
                return True
            rest = self.text[self.at : self.at + len(mark)]
            if self.ended or not mark.startswith(rest):
                return False
            yield

    def match(self, mark: str) -> Reading[bool]:
        """Returns True where `mark` came next; the mark is then taken."""
        found = yield from self.starts(mark)
        if found:
            self.take(len(mark))
        return found

    def until(self, marks: Marks, say: Callable[[str], object]) -> Reading[str]:
        """Sends the text before the first mark to `say`. Takes the mark and returns it; returns "" where the text ends
        before a mark."""
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
        """Returns True where one of the marks, or the end of the text, comes after white space; nothing is taken."""
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
        """Works like `until`, but a mark ends the text only where one of its followers comes next; elsewhere the mark
        is part of the text. marks: each mark with its followers."""
        looked_for = marks_of(tuple(marks))
        while True:
            mark = yield from self.until(looked_for, say)
            followers = marks.get(mark)
            if not mark or followers is None or (yield from self.follows(followers)):
                return mark
            say(mark)

    def word(self, pattern: re.Pattern[str], most: int) -> Reading[str]:
        """Takes all characters from here on that match the pattern, and returns them. Returns "" where they are more
        than `most`. pattern: matches single characters."""
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
    """Texts that are searched for at the same time. The first one in a text is found; of two at one position, the
    longer one."""

    def __init__(self, marks: Sequence[str]) -> None:
        self.marks = tuple(sorted({mark for mark in marks if mark}, key=lambda mark: (-len(mark), mark)))
        self._beginnings = frozenset(mark[:end] for mark in self.marks for end in range(1, len(mark)))
        self._firsts = frozenset(mark[0] for mark in self.marks)
        self._longest = max(map(len, self.marks), default=0)
        self.search = re.compile("|".join(map(re.escape, self.marks)) or r"(?!)").search
        firsts = "".join(map(re.escape, sorted(self._firsts)))
        self.may_begin = re.compile(f"[{firsts}]" if firsts else r"(?!)").search

    def held_from(self, text: str, at: int) -> int:
        """Returns the position from which the end of the text may be the beginning of a mark."""
        first = max(at, len(text) - self._longest + 1)
        if self._firsts.isdisjoint(text[first:]):
            return len(text)
        for place in range(first, len(text)):
            if text[place] in self._firsts and text[place:] in self._beginnings:
                return place
        return len(text)

    def may_grow(self, text: str, start: int) -> bool:
        """Returns True where the text from `start` on may still become a longer mark."""
        return len(text) - start < self._longest and text[start:] in self._beginnings


@lru_cache(maxsize=512)
def marks_of(marks: tuple[str, ...]) -> Marks:
    """Returns the object that searches for all of these texts at the same time. The objects are cached, because making
    one compiles a regular expression."""
    return Marks(marks)
