"""Explains in words why a file cannot be read: the reason without the form of Python's message, and what to do."""

from __future__ import annotations

import errno

NOT_TEXT = "It is not UTF-8 text: byte 0x{byte:02x} at position {position:,}."


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Returns the reason as one sentence, such as "Permission denied."."""
    if isinstance(error, UnicodeDecodeError):
        return NOT_TEXT.format(byte=error.object[error.start], position=error.start)
    if error.errno == errno.EISDIR:
        return "It is a folder."
    return f"{error.strerror or error}."


def fix_unreadable(error: OSError | UnicodeDecodeError, otherwise: str) -> str:
    """Returns what the user can do about the unreadable file. otherwise: the advice for errors that are about neither a
    missing file nor missing permissions."""
    if isinstance(error, PermissionError):
        return "Check the permissions of the file and of its folders."
    if isinstance(error, FileNotFoundError):
        return "Check the path."
    return otherwise
