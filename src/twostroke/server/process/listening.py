"""Binds the port of a server, and begins to listen. A start binds before it loads the model, so this file imports no
other file of the server.
"""

from __future__ import annotations

import errno
import socket

from twostroke.types.errors import ConfigError

CONNECTIONS_WAITING = 2048


def bind(host: str, port: int) -> socket.socket:
    """Returns a listening TCP socket, as `reserved` binds it. Raises ConfigError that explains what is wrong with the
    address."""
    listener = reserved(host, port)
    begin_listening(listener)
    return listener


def reserved(host: str, port: int) -> socket.socket:
    """Returns a TCP socket that is bound and does not listen: clients are refused until the model is loaded. Where a
    name such as localhost has addresses of both kinds, the socket has the IPv4 address, where most clients look. Raises
    ConfigError that explains what is wrong with the address."""
    where = f"{host} port {port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda each: each[0] is not socket.AF_INET)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{host!r} is no address of this machine.", why=f"{error}.", fix="Use --host 127.0.0.1."
        ) from None
    # asyncio turns Nagle's algorithm off only when the protocol is named. With Nagle's algorithm, a stream on a kept
    # connection waits 40 ms for the client's delayed acknowledgement before its first token.
    try:
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise _bind_error(error, where) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _bind_error(error, where) from None
    return listener


def begin_listening(listener: socket.socket) -> None:
    """Lets clients connect to a bound socket; changes nothing where they can already. Raises ConfigError where another
    program has listened at its address since it was bound."""
    try:
        listener.listen(CONNECTIONS_WAITING)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        listener.close()
        raise _bind_error(error, f"{host} port {port}") from None


def _bind_error(error: OSError, where: str) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"Cannot listen on {where}: it is taken.",
            why="Another program, perhaps another server of this kind, listens there.",
            fix="Stop it, choose another --port, or use --port 0 for a free one.",
        )
    if error.errno == errno.EACCES:
        return ConfigError(
            f"Cannot listen on {where}: not permitted.",
            why="Ports below 1024 belong to the administrator.",
            fix="Use a --port from 1024 on.",
        )
    return ConfigError(f"Cannot listen on {where}.", why=f"{error.strerror}.", fix="Use --host 127.0.0.1.")
