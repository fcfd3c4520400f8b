"""`twostroke serve`: the HTTP server, alone or supervised."""

from __future__ import annotations

import asyncio
import faulthandler
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.options import ADAPTER_OPTIONS, ENGINE_OPTIONS, MODELS_OPTIONS, SERVER_OPTIONS
from twostroke.assembly.settings.server_settings import ListenSettings
from twostroke.cli.server.run_built import facts_text, listening, serve_built
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.garbage import resume
from twostroke.cli.shared.interrupt import finish_undisturbed
from twostroke.cli.shared.progress import progress_bar
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.server.process.supervise import Supervisor
    from twostroke.server.process.worker import Line

ASK_SEVERAL = frozenset({"models", "models_dir", "pulls", "store"})
"""The options that make this a server of several models, however many are named."""
MODELS_NAMES = tuple(option.name for option in MODELS_OPTIONS)
REPLICAS_HELP = "How many processes compute. If one ends, its streams go on in another, with the same bits."

ONE_PROCESS_HELP = (
    "Compute in one process, also on a machine of several memory nodes, where a rank or a replica on each node is the "
    "default if it is predicted to do more."
)


@dataclass(frozen=True)
class ProcessFlags:
    """The flags of a server's processes. worker_fds: the descriptors that a supervisor gives its worker."""

    replicas: int | None = flag("--replicas", type=click.IntRange(1, 64), default=None, help=REPLICAS_HELP)
    one_process: bool = flag("--one-process", is_flag=True, help=ONE_PROCESS_HELP)
    supervise: bool = flag(
        "--supervise", is_flag=True, help="Serve from a process that is started again when native code dies."
    )
    worker_fds: tuple[int, int, int] | None = flag("--worker-fds", type=(int, int, int), default=None, hidden=True)


@click.command(
    cls=ExampleCommand, example="twostroke serve meta-llama/Llama-3.2-1B-Instruct --weights int4 --port 8000"
)
@click.argument("models_named", metavar="[MODEL]...", nargs=-1)
@option_flags(ENGINE_OPTIONS + SERVER_OPTIONS + ADAPTER_OPTIONS + MODELS_OPTIONS)
@taking(ProcessFlags, "processes")
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks and the access log.")
def command(
    models_named: tuple[str, ...], processes: ProcessFlags, as_json: bool, verbose: bool, **options: Any
) -> None:
    """Serve MODEL (a folder, GGUF file, hub id, or 'spark') with the OpenAI API on 127.0.0.1:8000.

    Several models are served by one server, each from a process of its own that is loaded when it is wanted.
    """
    with clear_errors(verbose):
        replicas, supervise = processes.replicas, processes.supervise
        if _several(models_named, options):
            from twostroke.cli.server.several import serve_several

            if supervise or replicas is not None:
                raise ConfigError(
                    "--supervise and --replicas are for a server of one model.",
                    fix="Leave them out: the processes of several models are started again when they end.",
                )
            serve_several(models_named, options, as_json, verbose)
            return
        if wrong := next((name for name in MODELS_NAMES if options[name] is not None), None):
            raise ConfigError(
                f"--{wrong.replace('_', '-')} is for a server of several models.",
                why="The one model of a server is loaded as long as it runs.",
                fix="Leave it out, or name more models.",
            )
        model = models_named[0] if models_named else "spark"
        options = {name: value for name, value in options.items() if name not in MODELS_NAMES}
        if not processes.one_process and replicas is None and not supervise:
            options, replicas = _on_nodes(model, options, alone=processes.worker_fds is not None)
        if replicas is not None:
            from twostroke.cli.server.replicas import serve_with_replicas

            if supervise:
                raise ConfigError("--supervise and --replicas cannot be together.", fix="--replicas restarts them.")
            serve_with_replicas(model, options, replicas, as_json, verbose)
            return
        if supervise:
            flags = ["--json"] * as_json + ["-v"] * verbose + ["--one-process"] * processes.one_process
            sys.exit(_supervise(model, options, flags))
        _serve(model, options, as_json, verbose, processes.worker_fds)


def _several(models_named: tuple[str, ...], options: dict[str, Any]) -> bool:
    """Returns whether this is a server of several models. A server of one model does not import the modules for several
    models."""
    if len(models_named) > 1:
        return True
    from twostroke.assembly.settings.env import asked_by_environment

    given = {name for name in ASK_SEVERAL if options[name] is not None}
    return bool(given or asked_by_environment().keys() & ASK_SEVERAL)


def _on_nodes(model: str, options: dict[str, Any], *, alone: bool) -> tuple[dict[str, Any], int | None]:
    """Returns the options and the number of replicas, chosen for the memory nodes (NUMA) of this machine. Where ranks
    are predicted to be best, their options are added. The number is None where nothing is chosen. alone: whether this
    process cannot have replicas."""
    from twostroke.cli.server.nodes import announce, chosen_here

    choice = chosen_here(model, options, alone=alone)
    if choice is None:
        return options, None
    announce(choice)
    return {**options, **choice.options}, choice.replicas


def _serve(
    model: str, options: dict[str, Any], as_json: bool, verbose: bool, worker_fds: tuple[int, int, int] | None
) -> None:
    import twostroke.server.serve  # noqa: F401 (while the disk reads: after the load nothing is left to import)
    from twostroke.server.build import build_server
    from twostroke.server.process.crash_notes import CrashNotes

    with ExitStack() as stack:
        listener = _held_port(options, stack) if worker_fds is None else socket.socket(fileno=worker_fds[0])
        faulthandler.enable()  # a crash in native code then prints where it happened
        with progress_bar("load") as progress:
            notes = None if worker_fds is None else CrashNotes(worker_fds[2])
            built = build_server(model, options, progress, notes)
        line = None if worker_fds is None else _line(worker_fds[1])
        serve_built(built, facts_text(built.facts), as_json, verbose, line, listener)


def _held_port(options: dict[str, Any], stack: ExitStack) -> socket.socket | None:
    """Binds the port before the model is loaded, so that a port that is taken is reported at once. Returns None for a
    socket of the file system, which is made when the server is ready."""
    from twostroke.assembly.settings.config import place_of
    from twostroke.assembly.settings.env import asked_by_environment
    from twostroke.assembly.settings.resolver import collect
    from twostroke.server.process.listening import reserved

    place = place_of(collect(options, asked_by_environment())).listen
    return None if place.uds is not None else stack.enter_context(reserved(place.host, place.port))


def _line(descriptor: int) -> Line:
    from twostroke.server.process.worker import Line

    return Line(socket.socket(fileno=descriptor))


def _supervise(model: str, options: dict[str, Any], flags: list[str]) -> int:
    """Binds the socket here, and serves in a worker process that inherits it. The API key is passed in an environment
    variable, so that `ps` does not show it."""
    from twostroke.assembly.settings.config import place_of
    from twostroke.assembly.settings.env import asked_by_environment, notify_address, process_environment
    from twostroke.assembly.settings.resolver import collect
    from twostroke.cli.server.replicas import words_of
    from twostroke.server.process.notify import SystemdNotifier
    from twostroke.server.process.supervise import Supervisor

    environment = process_environment()
    secret = ListenSettings.api_key.name
    if options.get(secret) is not None:
        environment[f"TWOSTROKE_{secret.upper()}"] = options[secret]
    environment = {name: value for name, value in environment.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_PID")}
    words = words_of({name: value for name, value in options.items() if value is not None and name != secret})

    def worker(listening: int, line: int, notes: int) -> list[str]:
        fds = ["--worker-fds", str(listening), str(line), str(notes)]
        return [sys.executable, "-P", "-m", "twostroke", "serve", model, *words, *flags, *fds]

    def say(text: str) -> None:
        click.echo(f"supervisor: {text}", err=True)

    resume()
    with listening(place_of(collect(options, asked_by_environment()))) as listener:
        supervisor = Supervisor(worker, listener, environment, say, SystemdNotifier(notify_address()))
        return asyncio.run(_to_the_end(supervisor))


async def _to_the_end(supervisor: Supervisor) -> int:
    try:
        return await supervisor.run()
    finally:
        finish_undisturbed()
