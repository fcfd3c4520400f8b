"""Takes the next connection of a listening socket. If one connection fails, the listener goes on."""

from __future__ import annotations

import errno
import socket

from twostroke.types.errors import BackendError

NO_LISTENER = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK})


def accepted(listener: socket.socket) -> tuple[socket.socket, str] | None:
    """Returns a connection and the host that it comes from. Returns None where the connection was lost before it was
    accepted, and where the process has no room for it: wait a little before the next call.

    Raises TimeoutError at the end of the listener's own timeout. Raises BackendError where the listener will never give
    a connection again.
    """
    try:
        sock, address = listener.accept()
    except TimeoutError:
        raise
    except OSError as error:
        if error.errno in NO_LISTENER:
            raise BackendError("The listening socket is broken.", why=f"{error}.", fix="Start it again.") from error
        return None
    return sock, address[0] if address else ""
