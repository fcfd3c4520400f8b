"""`twostroke stop`: ends servers that this user has started on this machine, or unloads one of their models."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass

import click

from twostroke.assembly.settings.server_settings import ListenSettings
from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.readings import DURATION
from twostroke.cli.shared.server_records import ServerRecord, local_servers
from twostroke.cli.store.local_servers import having
from twostroke.cli.store.unloading import models_of, unload
from twostroke.types.errors import ConfigError, EngineStopped

LOOK_EVERY_S = 0.05
SECOND_SIGNAL_S = 0.5
"""The seconds between two signals. A second signal that comes sooner counts as the first (server/serve.py)."""


@click.command(cls=ExampleCommand, example="twostroke stop llama3.2:1b")
@click.argument("model", required=False)
@click.option("--all", "all_servers", is_flag=True, help="End all servers of this user on this machine.")
@click.option("--now", is_flag=True, help="Cut running answers short.")
@click.option("--api-key", metavar="KEY", default=None, help="The server's API key [env TWOSTROKE_API_KEY].")
@click.option(
    "--wait", "wait_s", metavar="TIME", callback=DURATION, default="60s", help="The longest wait [default: 60s]."
)
@output_flags
def command(
    model: str | None,
    all_servers: bool,
    now: bool,
    api_key: str | None,
    wait_s: float,
    as_json: bool,
    verbose: bool,
) -> None:
    """End the server of MODEL, or the only one, as `ps` lists them. A server with several models only unloads MODEL.
    Answers that run are finished first. Servers of other users, and those that other programs started, are never
    touched."""
    with clear_errors(verbose):
        chosen = _chosen(local_servers(), model, all_servers)
        if model is not None and not all_servers and (others := models_of(chosen[0])):
            _unload(chosen[0], model, len(others), UnloadWish(now, api_key, wait_s, as_json))
            return
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
            shown = [{"pid": each.pid, "url": each.url, "names": list(each.names)} for each in chosen]
            print_json({"stopped": shown, "unloaded": []})
        else:
            click.echo(f"stopped: {_named(chosen)}")


@dataclass(frozen=True)
class UnloadWish:
    """How `stop` unloads one model while the server goes on with its other models. now: whether --now was given, which
    is refused."""

    now: bool
    api_key: str | None
    wait_s: float
    as_json: bool


def _unload(record: ServerRecord, model: str, count: int, wish: UnloadWish) -> None:
    """Unloads a model after its last answer; the server, which has `count` models, goes on. Raises ConfigError for
    --now, which would end the whole server and cut the answers of the other models."""
    from twostroke.assembly.settings.env import asked_by_environment

    if wish.now:
        raise ConfigError(
            f"--now ends a whole server, and the one at {record.url} has {count} models.",
            why=f"{model} is unloaded after its last answer; the others go on.",
            fix="Leave --now out, or end the server: twostroke stop --all --now",
        )
    key = wish.api_key or asked_by_environment().get(ListenSettings.api_key.name)
    gone = unload(record, model, key, wish.wait_s)
    if wish.as_json:
        print_json({"stopped": [], "unloaded": [gone]})
    else:
        click.echo(f"unloaded: {gone['model']} at {gone['url']}, which goes on with its other models")


def _chosen(servers: list[ServerRecord], model: str | None, all_servers: bool) -> list[ServerRecord]:
    """Returns the servers to end. Raises ConfigError where it is not clear which ones are meant."""
    if not servers:
        raise ConfigError(
            "No server of this user runs on this machine.",
            why="There is no record of one. A server in a container or of another user has its record elsewhere.",
            fix="End such a server in the place where it was started.",
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
