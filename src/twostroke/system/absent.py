"""Calls that only Linux has. Other systems import them from here: they do nothing, or report an error."""

from __future__ import annotations

__all__ = ["fetch", "fetch_ahead", "forget", "is_in_memory", "prefer_memory_of", "take_room"]


def prefer_memory_of(node: int) -> bool:
    """Returns False, because this system has no such call. On Linux it makes the calling thread take new memory from
    this memory node."""
    return False


def take_room(descriptor: int, num_bytes: int) -> None:
    """Raises OSError, because this system has no such call. On Linux it reserves `num_bytes` on the disk for a file."""
    raise OSError("this system does not take room for a file before it is written")


def fetch_ahead(descriptor: int, offset: int, num_bytes: int) -> None:
    """Does nothing. On Linux it makes the system read a part of a file into memory while the program goes on."""


def fetch(descriptor: int, offset: int, num_bytes: int) -> int:
    """Returns 0, because this system has no such call. On Linux it waits until a part of a file is in memory and
    returns the number of bytes there."""
    return 0


def is_in_memory(descriptor: int, offset: int) -> bool:
    """Returns True, because this system does not tell. On Linux it returns whether this byte of a file is in memory."""
    return True


def forget(descriptor: int) -> None:
    """Does nothing. On Linux it makes the system drop the parts of a file that it keeps in memory."""
