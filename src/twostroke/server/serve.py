"""Bind, announce, serve, stop: runs uvicorn with the app, and starts and stops the engine."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from twostroke.server.admission import Closing
from twostroke.server.app import create_app
from twostroke.server.gate.drain import Drain
from twostroke.server.gate.protocol import MAX_HEADER_BYTES, DeadlineProtocol, Patience
from twostroke.server.gate.security import is_loopback
from twostroke.server.parts import ServerParts
from twostroke.server.process.listening import bind
from twostroke.server.socket_file import UNIX, path_of
from twostroke.system import here
from twostroke.types.errors import ConfigError, EngineStopped

log = logging.getLogger("twostroke.server")
CUT_S = 2
SAME_SIGNAL_S = 0.1
LAST_WORDS_S = 2.0
KEEP_ALIVE_S = 125
"""The seconds for which an idle connection stays open: longer than clients and proxies keep theirs (Go 90, Caddy
120). So no request is sent into a connection that the server is closing."""
SWITCH_S = 0.0005
Announce = Callable[[str], None]
Watch = Callable[[], bool]
MakeApp = Callable[[ServerParts], ASGIApp]


def no_watch() -> bool:
    """Returns False, so that only a signal ends the server."""
    return False


def run(
    parts: ServerParts,
    host: str,
    port: int,
    announce: Announce,
    watch: Watch = no_watch,
    listener: socket.socket | None = None,
    make_app: MakeApp = create_app,
) -> None:
    """Serves until SIGINT or SIGTERM; requests in flight may finish (`drain_s`). Port 0 takes a free one.

    listener: a socket that is bound to host and port and listens already; None to bind one. make_app: makes the app of
    parts once it is known who may reach them.

    announce is called once with the base URL when the socket is bound and the engine runs. Raises ConfigError when the
    address cannot be bound, or when it is not loopback and there is no key. Raises EngineStopped as `serve` does.
    """
    check_address(host, parts.access.api_key)
    with listener or bind(host, port) as bound, short_turns():
        access = replace(parts.access, loopback_only=is_loopback(host))
        asyncio.run(serve(replace(parts, access=access), bound, announce, watch, make_app))


@contextmanager
def short_turns() -> Iterator[None]:
    """Lets the interpreter switch threads after SWITCH_S seconds, instead of 5 ms, until the block ends.

    A thread that writes to a socket gives the interpreter lock away. A thread that computes a step or reads a long text
    would then keep it for 5 ms.
    """
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


def check_address(host: str, api_key: str | None) -> None:
    """Raises ConfigError for an address that other machines can reach, when there is no key."""
    if not api_key and not is_loopback(host):
        raise ConfigError(
            f"Listening on {host} without an API key is refused.",
            why="Any client that reaches that address could use the server.",
            fix="Give --api-key, or listen on 127.0.0.1.",
        )


async def serve(
    parts: ServerParts,
    listener: socket.socket,
    announce: Announce,
    watch: Watch = no_watch,
    make_app: MakeApp = create_app,
) -> None:
    """Starts the engine, serves on a bound socket until a signal or `watch` ends it, then stops the engine.

    watch: called about ten times a second while it serves; True asks for a clean end. Raises EngineStopped when the
    engine ended by itself, or when requests did not finish in the time for draining.
    """
    await parts.serving.engine.start()
    server = make_server(parts, listener, announce, watch, make_app)
    take_signals(server)
    try:
        await server.serve(sockets=[listener])
        if not parts.serving.engine.alive:
            raise EngineStopped(
                "The engine ended by itself.", why="Its log says how.", fix="Start the server again."
            )
        if server.cut:
            raise EngineStopped(
                f"{server.cut} requests were cut short.",
                why=f"They did not finish in the {parts.admission.drain_s:g} s for draining.",
                fix="Give a longer --drain.",
            )
    finally:
        await parts.serving.engine.stop()
        await server.last_words()


def make_server(
    parts: ServerParts,
    listener: socket.socket,
    announce: Announce,
    watch: Watch = no_watch,
    make_app: MakeApp = create_app,
) -> Server:
    """Returns the uvicorn server; setting its `should_exit` stops it."""
    admission, stored = parts.admission, parts.serving.stored
    limits = admission.limits
    patience = Patience(
        limits.header_s, limits.stalled_s, limits.crowded_s, lambda: parts.serving.engine.gauges().waiting > 0
    )
    config = uvicorn.Config(
        make_app(parts),
        http=cast(type[asyncio.Protocol], partial(DeadlineProtocol, patience=patience)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CUT_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    drain = Drain(admission.door, admission.drain_s, admission.door.clock)
    resume = None if stored is None else stored.resume
    hooks = ServerHooks(lambda: announce(url_of(listener)), lambda: parts.serving.engine.alive, watch, resume)
    return Server(config, hooks, drain, admission.closing)


class ServerHooks(Struct, frozen=True):
    """The functions that a server calls. announce: called once when the server listens. watch: called at each tick;
    True asks for a clean end. resume: continues stored batches and background responses."""

    announce: Callable[[], None]
    engine_alive: Callable[[], bool]
    watch: Watch
    resume: Callable[[], Coroutine[Any, Any, None]] | None = None


class Server(uvicorn.Server):
    """uvicorn's server with three changes. It calls `announce` when it listens; it drains before it stops; and SIGINT
    and SIGTERM end this server, so that the process can still close the engine.

    cut: the number of requests that did not finish in time.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        hooks: ServerHooks,
        drain: Drain,
        closing: Closing,
    ) -> None:
        super().__init__(config)
        self._hooks = hooks
        self._drain = drain
        self._closing = closing
        self.cut = 0

    async def on_tick(self, counter: int) -> bool:
        """Returns True when the server should end. uvicorn calls it ten times a second."""
        if self._hooks.watch():
            self._drain.begin()
        if self._drain.over or not self._hooks.engine_alive():
            self.cut = self._drain.cut
            self.should_exit = True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Starts to drain at the first signal: the socket stays open, so that new requests get 503. Ends at once at the
        second signal.

        A launcher may pass Ctrl-C on to a server that has already got it from the terminal. So a second signal within
        SAME_SIGNAL_S seconds is ignored.
        """
        if not self._drain.begun:
            self._drain.begin()
            if self._drain.cut:
                log.warning("requests that run may finish: %d; a second signal ends them now", self._drain.cut)
        elif self._drain.lasts_s > SAME_SIGNAL_S and not self.should_exit:
            log.warning("a second signal: requests that are cut short: %d", self._drain.cut)
            self.should_exit = self.force_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, continues stored batches and background responses, then calls `announce`."""
        await super().startup(sockets=sockets)
        if self.started:
            if self._hooks.resume is not None:
                await self._hooks.resume()
            self._hooks.announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams of live events, which would otherwise never end, then waits for requests in flight."""
        self._closing.began = True
        await super().shutdown(sockets=sockets)

    async def last_words(self) -> None:
        """Called after the engine has stopped: waits until interrupted streams have sent their clients the error."""
        if tasks := list(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing: `take_signals` handles signals instead, until the event loop is closed.

        uvicorn's own version raises the signal again afterwards, which would end the process before the engine stops.
        """
        yield


def take_signals(server: Server) -> None:
    """Passes SIGINT and SIGTERM to the server until the event loop is closed. So a signal cannot interrupt the engine's
    stop or the closing of the loop."""
    if threading.current_thread() is threading.main_thread():
        here.signals_from_now(lambda kind: server.handle_exit(kind, None), (signal.SIGINT, signal.SIGTERM))


def url_of(listener: socket.socket) -> str:
    """Returns the base URL of a bound socket, with its real port; unix:PATH for a socket of the file system."""
    if (path := path_of(listener)) is not None:
        return f"{UNIX}{path}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
