"""The text of a PDF file, read in a process of its own that has limits of memory and time."""

from __future__ import annotations

import subprocess
import sys
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from msgspec import MsgspecError, Struct

from twostroke.system.starting import apart, why_no_process
from twostroke.types.errors import BackendError, HelperNotStarted, InvalidRequest
from twostroke.types.reading.decoders import json_decoder

CHILD = Path(__file__).with_name("pdf_child.py")
BEGIN = b"%PDF-"
LOOKED_AT = 1024
"""A reader of PDF files looks for their mark in the first LOOKED_AT bytes."""
FIX = "Save its text as a file with another program, as `pdftotext` does, and attach that."


class PdfLimits(Struct, frozen=True):
    """The limits within which a PDF file is read. file_bytes, pages, characters: the largest size of one file, its most
    pages, and the most characters of its text. memory_bytes, wall_s: the most that the process may use."""

    file_bytes: int = 32 << 20
    pages: int = 2000
    characters: int = 4_000_000
    memory_bytes: int = 1 << 30
    wall_s: float = 60.0


class PdfText(Struct, frozen=True):
    """The text of a PDF file. pages: how many pages it has. empty: how many of them have no text, for example because
    they are pictures of text."""

    text: str
    pages: int
    empty: int


class _Told(Struct):
    text: str = ""
    pages: int = 0
    empty: int = 0
    fault: str = ""


_told = json_decoder(_Told)


@cache
def has_pypdf() -> bool:
    """Returns True when the reader of PDF files is installed. It is never imported in this process."""
    return find_spec("pypdf") is not None


def text_of_pdf(data: bytes, limits: PdfLimits | None = None) -> PdfText:
    """Returns the text of a PDF file. Raises InvalidRequest for a file that cannot be read, BackendError when pypdf is
    not installed."""
    limits = limits or PdfLimits()
    if BEGIN not in data[:LOOKED_AT]:
        raise InvalidRequest("The file is no PDF file.", why="It does not begin as one.", fix="Attach another file.")
    if len(data) > limits.file_bytes:
        why = f"It has {len(data):,} bytes, and {limits.file_bytes:,} are read at most."
        raise InvalidRequest("The PDF file is too large.", why=why, fix=FIX)
    if not has_pypdf():
        fix = "pip install 'twostroke[pdf]'"
        raise BackendError("PDF files cannot be read.", why="pypdf is not installed.", fix=fix)
    numbers = (limits.memory_bytes, limits.pages, limits.characters)
    try:
        command = [sys.executable, "-I", str(CHILD), *map(str, numbers)]
        streams: dict[str, int] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        start = partial(subprocess.run, command, input=data, timeout=limits.wall_s, env={}, check=False, **streams)
        done = apart(start)  # Ctrl-C must reach only the parent
    except subprocess.TimeoutExpired:
        why = f"It may take {limits.wall_s:g} s."
        raise InvalidRequest("The PDF file takes too long to read.", why=why, fix=FIX) from None
    except OSError as error:
        what = "The process that reads PDF files did not start."
        fix = "Attach text, or let the container start processes."
        raise HelperNotStarted(what, why=why_no_process(error), fix=fix) from None
    try:
        told = _told.decode(done.stdout)
    except (ValueError, MsgspecError):
        why = "The process that reads it ended: it may have needed more memory than it may have."
        raise InvalidRequest("The PDF file cannot be read.", why=why, fix=FIX) from None
    if told.fault:
        raise InvalidRequest(f"The PDF file cannot be read: {told.fault}.", fix=FIX)
    if not told.text:
        why = "Its pages are pictures, or have none."
        fix = "Attach its pages as images, to a model that sees."
        raise InvalidRequest("The PDF file has no text.", why=why, fix=fix)
    return PdfText(told.text, told.pages, told.empty)
