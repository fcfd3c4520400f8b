"""Prepares the three standard streams, which the calling program may have left closed, full, or in another encoding."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from twostroke.types.errors import InvalidRequest

ISO_HINT = "Convert it, for example with `iconv -f latin1 -t utf-8`."


def open_missing_streams() -> None:
    """Opens /dev/null for each stream that the parent process closed, so that no file or socket takes its descriptor.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # open() takes the lowest free descriptor
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


class RecordedOutput(io.FileIO):
    """Standard output that remembers why it could not be written."""

    problem: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Writes as FileIO does, and records the problem where that fails."""
        try:
            return super().write(data) or 0
        except OSError as error:
            self.problem = error
            raise


def in_utf8() -> None:
    """Starts the same command again in Python's UTF-8 mode, where the locale has only ASCII. Arguments, paths and
    standard streams are then read as UTF-8, as other programs write them. Does nothing with any other encoding."""
    ascii_only = codecs.lookup(sys.getfilesystemencoding()).name == "ascii"
    if ascii_only and not sys.flags.utf8_mode and sys.executable and sys.orig_argv:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def prepare_streams() -> None:
    """Prepares the streams. Input bytes that are not text are read as lone surrogates, as in arguments; see `as_text`.

    Output is recorded for `output_problem`: an OSError alone does not tell which file it comes from. A character that
    the output's encoding does not have is written as its escape.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    old = sys.stdout
    if old is sys.__stdout__ and isinstance(old, io.TextIOWrapper):
        raw = RecordedOutput(old.fileno(), "w", closefd=False)
        errors = "backslashreplace" if old.errors == "strict" else old.errors
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding=old.encoding, errors=errors, line_buffering=raw.isatty()
        )


def as_text(text: str, what: str) -> str:
    """Checks a text and returns it unchanged. Raises InvalidRequest where bytes in it were not UTF-8."""
    for position, character in enumerate(text):
        if "\udc80" <= character <= "\udcff":
            raise InvalidRequest(
                f"{what} is not UTF-8 text.",
                why=f"Character {position + 1:,} is the byte 0x{ord(character) - 0xDC00:02x}.",
                fix=ISO_HINT,
            )
    return text


def checked_arguments(words: Sequence[str]) -> None:
    """Raises InvalidRequest for an argument that is not UTF-8: it could not be printed, sent or written to JSON."""
    for place, word in enumerate(words, start=1):
        as_text(word, f"Argument {place}")


def output_problem() -> str | None:
    """Returns why standard output could not be written; None where it could be written, "" where its reader has left
    (`| head`).

    After a problem, further output is discarded, so that the caller's message is the only one.
    """
    output = sys.stdout
    raw = getattr(getattr(output, "buffer", None), "raw", None)
    if not isinstance(raw, RecordedOutput):
        return None
    with contextlib.suppress(OSError, ValueError):
        output.flush()
    problem, raw.problem = raw.problem, None
    if problem is None:
        return None
    _drop(raw.fileno())
    return "" if problem.errno == errno.EPIPE else problem.strerror or str(problem)


def _drop(descriptor: int) -> None:
    """Sends the text in buffers to /dev/null: the interpreter flushes once more when it ends, and would fail again."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
