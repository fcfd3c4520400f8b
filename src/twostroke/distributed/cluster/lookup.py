"""Looks up the address of a host's name in a separate thread: a name server may be slow, and streams must not wait."""

from __future__ import annotations

import socket
import threading
from typing import Any

Found = tuple[int, int, int, Any]
"""(family, kind, protocol, address) for a TCP socket."""


class Lookup:
    """Looks up numeric addresses at once, and names in a thread. The answer comes once."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._found: Found | OSError | None = None
        try:
            self._found = self._ask(socket.AI_NUMERICHOST)
        except OSError:
            threading.Thread(target=self._ask_names, name="lookup", daemon=True).start()

    def answer(self) -> Found | None:
        """Returns the address; None while the lookup has no answer yet. Raises OSError where the lookup failed."""
        if isinstance(self._found, OSError):
            raise self._found
        return self._found

    def _ask(self, flags: int) -> Found:
        family, kind, protocol, _, address = socket.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM, flags=flags
        )[0]
        return family, kind, protocol, address

    def _ask_names(self) -> None:
        try:
            self._found = self._ask(0)
        except OSError as error:
            self._found = error
        except UnicodeError as error:  # a label of the name is empty or too long
            self._found = OSError(str(error))
