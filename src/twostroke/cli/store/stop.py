"""`twostroke stop`: ends servers that this user has started on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.readings import DURATION
from twostroke.cli.shared.server_records import ServerRecord
from twostroke.cli.store.local_servers import having, local_servers
from twostroke.types.errors import ConfigError, EngineStopped

LOOK_EVERY_S = 0.05
SECOND_SIGNAL_S = 0.5
"""The seconds between two signals. A second signal that comes sooner counts as the first (server/serve.py)."""


@click.command(cls=ExampleCommand, example="twostroke stop llama3.2:1b")
@click.argument("model", required=False)
@click.option("--all", "all_servers", is_flag=True, help="End all servers of this user on this machine.")
@click.option("--now", is_flag=True, help="Cut running answers short.")
@click.option(
    "--wait", "wait_s", metavar="TIME", callback=DURATION, default="60s", help="The longest wait [default: 60s]."
)
@output_flags
def command(model: str | None, all_servers: bool, now: bool, wait_s: float, as_json: bool, verbose: bool) -> None:
    """End the server of MODEL, or the only one, as `ps` lists them. Answers that run are finished first. Servers of
    other users, and those that other programs started, are never touched."""
    with clear_errors(verbose):
        chosen = _chosen(local_servers(), model, all_servers)
        for record in chosen:
            _signal(record)
        if now:
            time.sleep(SECOND_SIGNAL_S)
            for record in chosen:
                _signal(record)
        left = _wait(chosen, wait_s)
        if left:
            raise EngineStopped(
                f"{_named(left)} still runs after {wait_s:g} s.",
                why="Answers that run are finished first, and the server takes no new ones.",
                fix="Wait, or give --now to cut them short.",
            )
        if as_json:
            print_json({"stopped": [{"pid": each.pid, "url": each.url, "names": list(each.names)} for each in chosen]})
        else:
            click.echo(f"stopped: {_named(chosen)}")


def _chosen(servers: list[ServerRecord], model: str | None, all_servers: bool) -> list[ServerRecord]:
    """Returns the servers to end. Raises ConfigError where it is not clear which ones are meant."""
    if not servers:
        raise ConfigError(
            "No server of this user runs on this machine.",
            why="None has left a record; one in a container or of another user leaves its own elsewhere.",
            fix="End a server that was started elsewhere there.",
        )
    if all_servers and model is None:
        return servers
    chosen = servers if model is None else having(servers, model)
    if model is not None and not chosen:
        why = f"There are {_named(servers)}."
        raise ConfigError(f"No server here has {model}.", why=why, fix="See `twostroke ps`.")
    if len(chosen) > 1 and not all_servers:
        raise ConfigError(
            f"{len(chosen)} servers could be meant.", why=f"They are {_named(chosen)}.", fix="Name one, or give --all."
        )
    return chosen


def _signal(record: ServerRecord) -> None:
    """Asks a server to end, unless it has ended. Its process is checked once more, because the system uses ids again.
    """
    if record.runs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)


def _wait(servers: list[ServerRecord], wait_s: float) -> list[ServerRecord]:
    """Waits up to `wait_s` seconds, and returns the servers that still run."""
    end_s = time.monotonic() + wait_s
    while (left := [each for each in servers if each.runs]) and time.monotonic() < end_s:
        time.sleep(LOOK_EVERY_S)
    return left


def _named(servers: list[ServerRecord]) -> str:
    return ", ".join(f"{each.names[0]} at {each.url} (process {each.pid})" for each in servers)
