"""`twostroke serve --replicas N`: replicas as child processes, and their front in this one."""

from __future__ import annotations

import secrets
import sys
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import CacheSettings, CpuSettings
from twostroke.assembly.settings.options import ADAPTER_OPTIONS, BY_NAME, ENGINE_OPTIONS, SERVER_OPTIONS
from twostroke.cli.server.front import OF_MODEL, serve_front
from twostroke.types.errors import EngineStopped

RESERVE = 0.9


def serve_with_replicas(model: str, options: dict[str, Any], count: int, as_json: bool, verbose: bool) -> None:
    """Serves with `count` replicas. Threads and memory of this machine are divided among them, unless the user sets
    them."""
    from twostroke.assembly.settings.env import process_environment, read_machine
    from twostroke.distributed.cluster.keeper import LocalKeeper

    words = words_of(shared_here(model, engine_options(options), count))
    secret = secrets.token_hex(32)

    def replica(name: str, descriptor: int) -> list[str]:
        own = ["--name", name, "--listen-fd", str(descriptor), *(["-v"] if verbose else [])]
        return [sys.executable, "-P", "-m", "twostroke", "replica", model, *words, *own]

    def say(text: str) -> None:
        click.echo(f"keeper: {text}", err=True)

    def check() -> None:
        if keeper.failed is not None:
            raise EngineStopped("No replica could start.", why="Their messages above say why.", fix="Start them again.")

    environment = process_environment() | {"TWOSTROKE_CLUSTER_SECRET": secret}
    keeper = LocalKeeper(count, replica, environment, say, places=read_machine().places(count))
    keeper.start()
    try:
        serve_front(model, server_options(options), keeper.addresses, secret, as_json, verbose, check)
    finally:
        keeper.close()


def engine_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the given options that are for a replica's engine. Raises ConfigError where clients may load adapters."""
    from twostroke.assembly.settings.config import refuse_later_adapters
    from twostroke.assembly.settings.env import asked_by_environment
    from twostroke.assembly.settings.resolver import collect

    refuse_later_adapters(collect(options, asked_by_environment()))
    of_engine = {option.name for option in ENGINE_OPTIONS + ADAPTER_OPTIONS}
    return {name: value for name, value in options.items() if name in of_engine and value is not None}


def server_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that are for a front, the HTTP server before the replicas."""
    served = {option.name for option in (*SERVER_OPTIONS, *OF_MODEL)}
    return {name: value for name, value in options.items() if name in served}


def shared_here(model: str, engine: dict[str, Any], count: int) -> dict[str, Any]:
    """Returns the engine options of each of `count` replicas on this machine. They share its threads and memory
    equally, unless threads and memory are given."""
    from twostroke.assembly.find import find_model

    whole = find_model(model, engine)
    settings, engine = whole.resolver.resolved(), dict(engine)
    engine.setdefault(CpuSettings.threads.name, str(max(1, settings.cpu.threads // count)))
    if CacheSettings.kv_memory.name not in engine:
        memory = settings.memory
        others = memory.weight_bytes + count * (memory.buffer_bytes + memory.process_bytes)
        room = int(whole.machine.available_bytes * RESERVE) - others
        engine[CacheSettings.kv_memory.name] = str(max(1, min(settings.cache.kv_memory, room // count)))
    return engine


def words_of(engine: dict[str, Any]) -> list[str]:
    """Returns the options as words of a command line."""
    return [word for name, value in engine.items() for each in _each(value) for word in (BY_NAME[name].flag, str(each))]


def _each(value: Any) -> tuple[Any, ...]:
    """Returns an option's values as a tuple: the tuple of an option that may be given several times, else the one
    value."""
    return value if isinstance(value, tuple) else (value,)
