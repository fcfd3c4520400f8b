"""`twostroke serve`: the HTTP server, alone or supervised."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.options import ADAPTER_OPTIONS, ENGINE_OPTIONS, SERVER_OPTIONS
from twostroke.cli.server.collector import lasting_heap
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, print_json
from twostroke.cli.shared.interrupt import finish_undisturbed
from twostroke.cli.shared.progress import progress_bar
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.assembly.settings.config import Resolved
    from twostroke.server.built import BuiltServer
    from twostroke.server.gate.door import Door
    from twostroke.server.process.supervise import Supervisor
    from twostroke.server.process.worker import Line

BEAT_S = 1.0
REPLICAS_HELP = "How many processes compute. If one ends, its streams go on in another, with the same bits."
KEY_HEADER = ' -H "Authorization: Bearer $TWOSTROKE_API_KEY"'


@click.command(
    cls=ExampleCommand, example="twostroke serve meta-llama/Llama-3.2-1B-Instruct --weights int4 --port 8000"
)
@click.argument("model", default="spark")
@option_flags(ENGINE_OPTIONS + SERVER_OPTIONS + ADAPTER_OPTIONS)
@click.option("--replicas", type=click.IntRange(1, 64), default=None, help=REPLICAS_HELP)
@click.option("--supervise", is_flag=True, help="Serve from a process that is started again when native code dies.")
@click.option("--worker-fds", "worker_fds", type=(int, int, int), default=None, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks and the access log.")
def command(
    model: str,
    replicas: int | None,
    supervise: bool,
    worker_fds: tuple[int, int, int] | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Serve MODEL (a folder, GGUF file, hub id, or 'spark') with the OpenAI API on 127.0.0.1:8000."""
    with clear_errors(verbose):
        if replicas is not None:
            from twostroke.cli.server.replicas import serve_with_replicas

            if supervise:
                raise ConfigError("--supervise and --replicas cannot be together.", fix="--replicas restarts them.")
            serve_with_replicas(model, options, replicas, as_json, verbose)
            return
        if supervise:
            flags = (["--json"] if as_json else []) + (["-v"] if verbose else [])
            sys.exit(_supervise(model, options, flags))
        _serve(model, options, as_json, verbose, worker_fds)


def _serve(
    model: str, options: dict[str, Any], as_json: bool, verbose: bool, worker_fds: tuple[int, int, int] | None
) -> None:
    from twostroke.server.build import build_server
    from twostroke.server.process.crash_notes import CrashNotes

    faulthandler.enable()  # a crash in native code says where
    with progress_bar("load") as progress:
        notes = None if worker_fds is None else CrashNotes(worker_fds[2])
        built = build_server(model, options, progress, notes)
    listener = None if worker_fds is None else socket.socket(fileno=worker_fds[0])
    line = None if worker_fds is None else _line(worker_fds[1])
    serve_built(built, facts_text(built.facts), as_json, verbose, line, listener)


def serve_built(
    built: BuiltServer,
    words: str,
    as_json: bool,
    verbose: bool,
    line: Line | None = None,
    listener: socket.socket | None = None,
) -> None:
    """Serve until a signal. words: what a start says of the model, above a line to try. verbose: the access log."""
    from twostroke.server.serve import run

    def announce(url: str) -> None:
        if as_json:
            print_json({"url": url, **built.facts})
        else:
            key_header = "" if built.resolved["api_key"] is None else KEY_HEADER
            click.echo(words + try_text(url, built.facts["served_name"], key_header))
        tell.send(READY="1", STATUS=f"serving {built.facts['served_name']} on {url}")

    with built, logging_to_stderr(built.resolved["log"], verbose), lasting_heap(), ExitStack() as sockets:
        listener = listener or sockets.enter_context(listening(built.resolved))
        tell, watch = watching(built.parts.door, line)
        try:
            run(built.parts, built.resolved["host"], built.resolved["port"], announce, watch, listener)
        finally:
            finish_undisturbed()  # nothing is left but to close what is open


def listening(resolved: Resolved) -> AbstractContextManager[socket.socket]:
    """The socket that settings ask for, listening: a port's or a file's."""
    from twostroke.server.serve import bind
    from twostroke.server.socket_file import socket_file

    if resolved["uds"] is not None:
        return socket_file(resolved["uds"], int(resolved["uds_mode"], 8))
    return bind(resolved["host"], resolved["port"])


def _line(descriptor: int) -> Line:
    from twostroke.server.process.worker import Line

    return Line(socket.socket(fileno=descriptor))


def watching(door: Door, line: Line | None) -> tuple[Any, Any]:
    """The notifier, and what the serving loop calls."""
    from twostroke.assembly.settings.env import notify_address, watchdog_s
    from twostroke.server.process.notify import BEATS, SystemdNotifier, Watch

    if line is not None:
        return line, Watch(line, BEAT_S, lambda: door.draining, time.monotonic, line.gone)
    notifier, limit_s = SystemdNotifier(notify_address()), watchdog_s()
    every_s = None if limit_s is None else limit_s / BEATS
    return notifier, Watch(notifier, every_s, lambda: door.draining, time.monotonic)


def _supervise(model: str, options: dict[str, Any], flags: list[str]) -> int:
    """Bind here, serve in a worker that inherits the socket. `ps` shows no key: it goes by the environment."""
    from twostroke.assembly.settings.config import collect, place_of
    from twostroke.assembly.settings.env import asked_by_environment, notify_address, process_environment
    from twostroke.cli.server.replicas import words_of
    from twostroke.server.process.notify import SystemdNotifier
    from twostroke.server.process.supervise import Supervisor

    environment = process_environment()
    if options.get("api_key") is not None:
        environment["TWOSTROKE_API_KEY"] = options["api_key"]
    environment = {name: value for name, value in environment.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_PID")}
    words = words_of({name: value for name, value in options.items() if value is not None and name != "api_key"})

    def worker(listening: int, line: int, notes: int) -> list[str]:
        fds = ["--worker-fds", str(listening), str(line), str(notes)]
        return [sys.executable, "-P", "-m", "twostroke", "serve", model, *words, *flags, *fds]

    def say(text: str) -> None:
        click.echo(f"supervisor: {text}", err=True)

    with listening(place_of(collect(options, asked_by_environment()))) as listener:
        supervisor = Supervisor(worker, listener, environment, say, SystemdNotifier(notify_address()))
        return asyncio.run(_to_the_end(supervisor))


async def _to_the_end(supervisor: Supervisor) -> int:
    try:
        return await supervisor.run()
    finally:
        finish_undisturbed()


@contextmanager
def logging_to_stderr(form: str, verbose: bool) -> Iterator[None]:
    """Requests' lines are written as JSON, or as text where that is asked for."""
    from twostroke.server.telemetry.logs import JsonLines, TextLines, set_up, tear_down

    lines = JsonLines() if form == "json" else TextLines()
    level = logging.INFO if verbose or form == "json" else logging.WARNING
    handler = set_up(lines, level, sys.stderr)
    try:
        yield
    finally:
        tear_down(handler)


def facts_text(facts: dict[str, Any]) -> str:
    """What a first-time user needs to know of the model."""
    on_cpu = f"{facts['threads']} threads, {facts['cpu_level']} kernels"
    return (
        f"{facts['served_name']}: {facts['weights']} weights, {facts['weight_bytes'] / 1e6:,.0f} MB; "
        f"{on_cpu if facts['device'] == 'cpu' else facts['device']}\n"
        f"{facts['room']}\n"
    )


def try_text(url: str, served_name: str, key_header: str) -> str:
    """Where it serves, and a line to try. key_header: curl's words for the key; empty without one."""
    messages = [{"role": "user", "content": "What is prefill?"}]
    body = json.dumps({"model": served_name, "messages": messages})
    path = url.removeprefix("unix:")
    base, how = (url, "") if path == url else ("http://localhost", f" --unix-socket {shlex.quote(path)}")
    return (
        f"Serving on {url}  (OpenAI base URL: {base}/v1{' by that socket' if how else ''})\n\n"
        f"Try:\n  curl{how} {base}/v1/chat/completions{key_header} -H 'Content-Type: application/json' -d '{body}'\n"
    )
