r"""Reads server-sent events from bytes as they come.

    reader.feed(b"data: {...}\n\n: ping\n") -> [b"{...}"]
"""

from __future__ import annotations

MAX_EVENT_BYTES = 16 << 20


class EventReader:
    """Takes bytes in pieces of any size and returns the data of whole events. Raises ValueError for an event of more
    than MAX_EVENT_BYTES."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Returns the data of the events that these bytes completed."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of more than {MAX_EVENT_BYTES:,} bytes")
        return [data for line in lines if (data := self._line(line.rstrip(b"\r"))) is not None]

    def finish(self) -> list[bytes]:
        """Returns the data of the last event, where the server left out the empty line after it."""
        found = [self._line(self._rest.rstrip(b"\r")), self._line(b"")]
        self._rest = b""
        return [data for data in found if data is not None]

    def _line(self, line: bytes) -> bytes | None:
        if not line and self._data:
            data, self._data = b"\n".join(self._data), []
            return data
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        return None
