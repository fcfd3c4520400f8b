"""Bind, announce, serve, stop: uvicorn around the app, the engine around uvicorn.

Knows: sockets, signals, uvicorn.
Must not know: routes, how the engine was built.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import cast

import uvicorn

from twostroke.server.app import create_app
from twostroke.server.parts import Closing, ServerParts
from twostroke.server.protocol import DeadlineProtocol
from twostroke.server.security import is_loopback
from twostroke.types.errors import ConfigError

GRACE_S = 5
KEEP_ALIVE_S = 30
MAX_HEADER_BYTES = 64 * 1024
Announce = Callable[[str], None]


def run(parts: ServerParts, host: str, port: int, announce: Announce) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight get a short grace. Port 0 takes a free one.

    announce is called once with the base URL when the socket is bound and the engine runs. Raises ConfigError where
    the address cannot be bound, or where it is not loopback and there is no key.
    """
    if not parts.api_key and not is_loopback(host):
        raise ConfigError(
            f"Listening on {host} without an API key is refused.",
            why="Everybody who reaches that address could use the server.",
            fix="Give --api-key, or listen on 127.0.0.1.",
        )
    listener = bind(host, port)
    try:
        asyncio.run(serve(replace(parts, loopback_only=is_loopback(host)), listener, announce))
    finally:
        listener.close()


async def serve(parts: ServerParts, listener: socket.socket, announce: Announce) -> None:
    """Start the engine, serve on a bound socket until told to stop, stop the engine."""
    await parts.engine.start()
    try:
        await make_server(parts, listener, announce).serve(sockets=[listener])
    finally:
        await parts.engine.stop()


def make_server(parts: ServerParts, listener: socket.socket, announce: Announce) -> Server:
    """The uvicorn server; setting its `should_exit` stops it."""
    config = uvicorn.Config(
        create_app(parts),
        http=cast(type[asyncio.Protocol], partial(DeadlineProtocol, header_s=parts.limits.header_s)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    return Server(config, lambda: announce(url_of(listener)), parts.closing)


class Server(uvicorn.Server):
    """uvicorn's server with an announcement, and with signals that end it instead of the process."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None], closing: Closing) -> None:
        super().__init__(config)
        self._announce = announce
        self._closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then announce."""
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell streams without an end, then wait for requests in flight."""
        self._closing.began = True
        await super().shutdown(sockets=sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal asks for a clean end, the second for a quick one.

        uvicorn's own version raises the signal again afterwards, which would end the process before the engine stops.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        kinds = (signal.SIGINT, signal.SIGTERM)
        for kind in kinds:
            loop.add_signal_handler(kind, self.handle_exit, kind, None)
        try:
            yield
        finally:
            for kind in kinds:
                loop.remove_signal_handler(kind)


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises ConfigError that says what is wrong with the address."""
    where = f"{host} port {port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{host!r} is no address of this machine.", why=f"{error}.", fix="Use --host 127.0.0.1."
        ) from None
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it on, a stream on a kept connection
    # waits 40 ms for the client's delayed acknowledgement before its first token.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _bind_error(error, where) from None
    return listener


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


def url_of(listener: socket.socket) -> str:
    """The base URL of a bound socket, with its real port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
