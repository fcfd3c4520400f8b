"""`twostroke cluster`: starts replicas by Ray with their front in this process, and shows which replicas answer."""

from __future__ import annotations

import secrets
import sys
import time
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import CpuSettings
from twostroke.assembly.settings.options import CLUSTER_OPTIONS, ENGINE_OPTIONS, SERVER_OPTIONS
from twostroke.cli.server.addresses import parse_address, require_secret
from twostroke.cli.server.front import serve_front
from twostroke.cli.server.replicas import engine_options, server_options, shared_here, words_of
from twostroke.cli.shared.command import ExampleCommand, SuggestingGroup, clear_errors, option_flags, print_json
from twostroke.types.errors import EngineStopped

STATUS_S = 5.0


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Several replicas with one front."""


@command.command(cls=ExampleCommand, example="twostroke cluster up meta-llama/Llama-3.2-1B-Instruct --replicas 3")
@click.argument("model", default="spark")
@option_flags(ENGINE_OPTIONS + SERVER_OPTIONS)
@click.option("--replicas", type=click.IntRange(1, 1024), default=2, show_default=True, help="How many.")
@click.option("--ray", "at", default=None, help="Address of a Ray cluster; without one, a Ray on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks and the access log.")
def up(model: str, replicas: int, at: str | None, as_json: bool, verbose: bool, **options: Any) -> None:
    """Start replicas of MODEL with Ray and serve from them until Ctrl-C, which ends them, too."""
    from twostroke.assembly.settings.env import no_usage_reports, process_environment
    from twostroke.distributed.cluster.ray_nodes import RayNodes, RayReplicas, load_ray

    def say(text: str) -> None:
        click.echo(f"cluster: {text}", err=True)

    def check() -> None:
        if nodes.failed is not None:
            raise EngineStopped("No replica could start.", why="Their messages above say why.", fix="Start them again.")

    no_usage_reports()
    with clear_errors(verbose):
        ray, engine = load_ray(), engine_options(options)
        engine = shared_here(model, engine, replicas) if at is None else engine
        secret, cpus = secrets.token_hex(32), int(engine.get(CpuSettings.threads.name, 1))
        asked = RayReplicas(replicas, (model, *words_of(engine)), secret, process_environment, cpus)
        nodes = RayNodes(ray, asked, at, say)
        nodes.start()
        try:
            serve_front(model, server_options(options), nodes.addresses, secret, as_json, verbose, check)
        finally:
            nodes.close()


@command.command(cls=ExampleCommand, example="twostroke cluster status --replicas 127.0.0.1:8101,127.0.0.1:8102")
@option_flags(CLUSTER_OPTIONS)
@click.option("--replicas", required=True, help="Addresses of replicas, HOST:PORT separated by commas.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def status(replicas: str, as_json: bool, verbose: bool, **options: Any) -> None:
    """Greet each replica as a front does; exit code 1 where one does not answer."""
    from twostroke.distributed.cluster.front import FrontStepper
    from twostroke.distributed.cluster.link import secret_key
    from twostroke.types.spec.formats import PAGE_TOKENS

    with clear_errors(verbose):
        secret = require_secret(options)
        addresses = [parse_address(text, secret) for text in replicas.split(",")]
        front = FrontStepper(addresses, PAGE_TOKENS, secret_key(secret), time.monotonic, print, lambda text: None)
        found = front.look(STATUS_S)
        front.close()
        if as_json:
            print_json({"replicas": found})
        else:
            for each in found:
                click.echo("  ".join(f"{each[name]}" for name in ("address", "state", "name", "role") if each[name]))
    sys.exit(0 if all(each["state"] == "ready" for each in found) else 1)
