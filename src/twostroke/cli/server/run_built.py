"""Serves a built server until a signal: the socket, the service manager, the log, the lines that a start prints."""

from __future__ import annotations

import json
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.shared.command import print_json
from twostroke.cli.shared.garbage import lasting_heap
from twostroke.cli.shared.interrupt import finish_undisturbed
from twostroke.types.pooling import Task

if TYPE_CHECKING:
    from twostroke.assembly.settings.resolver import Resolved
    from twostroke.cli.shared.server_records import OwnRecord
    from twostroke.server.built import BuiltServer
    from twostroke.server.gate.door import Door
    from twostroke.server.process.worker import Line

BEAT_S = 1.0
KEY_HEADER = ' -H "Authorization: Bearer $TWOSTROKE_API_KEY"'


def serve_built(
    built: BuiltServer,
    words: str,
    as_json: bool,
    verbose: bool,
    line: Line | None = None,
    listener: socket.socket | None = None,
) -> None:
    """Serves until a signal.

    words: the description of the model that is printed at the start. verbose: whether to write the access log.
    listener: a bound socket; None to bind the one of the settings.
    """
    from twostroke.server.process.listening import begin_listening
    from twostroke.server.serve import run

    def announce(url: str) -> None:
        record = sockets.enter_context(_record(built, url, supervised=line is not None))
        built.follow_names(record.rename)
        if as_json:
            print_json({"url": url, **built.facts})
        else:
            key_header = "" if built.resolved.listen.api_key is None else KEY_HEADER
            click.echo(words + try_text(url, built.facts["served_name"], key_header, built.parts.serving.task))
        tell.send(READY="1", STATUS=f"serving {built.facts['served_name']} on {url}")

    with built, logging_to_stderr(built.resolved.requests.log, verbose), lasting_heap(), ExitStack() as sockets:
        listener = listener or sockets.enter_context(listening(built.resolved))
        begin_listening(listener)
        tell, watch = watching(built.parts.admission.door, line)
        try:
            more = {} if built.make_app is None else {"make_app": built.make_app}
            run(built.parts, built.resolved.listen.host, built.resolved.listen.port, announce, watch, listener, **more)
        finally:
            finish_undisturbed()  # only open resources remain to be closed


def _record(built: BuiltServer, url: str, supervised: bool) -> AbstractContextManager[OwnRecord]:
    """Writes the record by which `ps`, `run` and `stop` find this server. supervised: whether `stop` must end the
    parent process, which is the supervisor."""
    from twostroke.assembly.settings.engine_settings import ModelSettings
    from twostroke.assembly.settings.env import read_machine
    from twostroke.cli.shared.server_records import SERVERS, recorded

    settings, names = built.resolved, tuple(built.facts.get("names", built.parts.serving.names))
    model = settings.model.model if settings.model.has(ModelSettings.model) else ""
    pid = os.getppid() if supervised else os.getpid()
    return recorded(read_machine().cache_folder / SERVERS, pid, url, str(model), names)


def listening(resolved: Resolved) -> AbstractContextManager[socket.socket]:
    """Returns the listening socket that the settings ask for, on a port or at a file."""
    from twostroke.server.process.listening import bind
    from twostroke.server.socket_file import socket_file

    if resolved.listen.uds is not None:
        return socket_file(resolved.listen.uds, int(resolved.listen.uds_mode, 8))
    return bind(resolved.listen.host, resolved.listen.port)


def watching(door: Door, line: Line | None) -> tuple[Any, Any]:
    """Returns (reporter, watch). The reporter tells the supervisor or systemd the state of this process. The serving
    loop calls the watch, which sends heartbeats. door: tells whether the server is draining. line: the connection to
    the supervisor; None without one."""
    from twostroke.assembly.settings.env import notify_address, watchdog_s
    from twostroke.server.process.notify import BEATS, SystemdNotifier, Watch

    if line is not None:
        return line, Watch(line, BEAT_S, lambda: door.draining, time.monotonic, line.gone)
    notifier, limit_s = SystemdNotifier(notify_address()), watchdog_s()
    every_s = None if limit_s is None else limit_s / BEATS
    return notifier, Watch(notifier, every_s, lambda: door.draining, time.monotonic)


@contextmanager
def logging_to_stderr(form: str, verbose: bool) -> Iterator[None]:
    """Writes the log of requests to standard error, as JSON or as text, as `form` asks."""
    from twostroke.server.telemetry.logs import JsonLines, TextLines, set_up, tear_down

    lines = JsonLines() if form == "json" else TextLines()
    level = logging.INFO if verbose or form == "json" else logging.WARNING
    handler = set_up(lines, level, sys.stderr)
    try:
        yield
    finally:
        tear_down(handler)


def facts_text(facts: dict[str, Any]) -> str:
    """Returns the facts about the model that a first-time user needs."""
    on_cpu = f"{facts['threads']} threads ({facts['threads_reason']}), {facts['cpu_level']} kernels"
    return (
        f"{facts['served_name']}: {facts['weights']} weights, {facts['weight_bytes'] / 1e6:,.0f} MB; "
        f"{on_cpu if facts['device'] == 'cpu' else facts['device']}\n"
        f"{facts['room']}\n"
    )


_TRIED: dict[Task, tuple[str, dict[str, Any]]] = {
    Task.GENERATE: ("chat/completions", {"messages": [{"role": "user", "content": "What is prefill?"}]}),
    Task.EMBED: ("embeddings", {"input": ["What is prefill?"]}),
    Task.RERANK: ("rerank", {"query": "What is prefill?", "documents": ["Reading a prompt.", "A book."]}),
}
"""For each task, an example of a request: its path below /v1, and its body without the model's name."""


def try_text(url: str, served_name: str, key_header: str, task: Task = Task.GENERATE) -> str:
    """Returns the text that `serve` prints when it is ready: the address, and a curl command to try. key_header: curl's
    option for the API key; empty without a key."""
    below, asked = _TRIED[task]
    body = json.dumps({"model": served_name, **asked})
    path = url.removeprefix("unix:")
    base, how = (url, "") if path == url else ("http://localhost", f" --unix-socket {shlex.quote(path)}")
    return (
        f"Serving on {url}  (OpenAI base URL: {base}/v1{' by that socket' if how else ''})\n\n"
        f"Try:\n  curl{how} {base}/v1/{below}{key_header} -H 'Content-Type: application/json' -d '{body}'\n"
    )
