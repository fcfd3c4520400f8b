"""`twostroke front`: the HTTP server in front of replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import ClusterSettings, DiskSettings, ImageSettings, TaskSettings
from twostroke.assembly.settings.option import options_of
from twostroke.assembly.settings.options import CLUSTER_OPTIONS, SERVER_OPTIONS
from twostroke.cli.server.addresses import parse_address, require_secret
from twostroke.cli.server.run_built import serve_built
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags

OF_MODEL = (
    *options_of(TaskSettings),
    *(ImageSettings.mmproj, ImageSettings.image_tokens, ImageSettings.image_urls, DiskSettings.cache),
)
"""The options of the engine that a front reads too. A front is an HTTP server whose replicas compute."""


@click.command(
    cls=ExampleCommand,
    example="twostroke front meta-llama/Llama-3.2-1B-Instruct --replicas 127.0.0.1:8101,127.0.0.1:8102",
)
@click.argument("model", default="spark")
@option_flags(SERVER_OPTIONS + OF_MODEL + CLUSTER_OPTIONS)
@click.option("--replicas", required=True, help="Addresses of replicas, HOST:PORT separated by commas.")
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks and the access log.")
def command(model: str, replicas: str, as_json: bool, verbose: bool, **options: Any) -> None:
    """Serve MODEL with the OpenAI API from replicas (`twostroke replica`) that run elsewhere."""
    with clear_errors(verbose):
        secret = require_secret(options)
        addresses = [parse_address(text, secret) for text in replicas.split(",")]
        options.pop(ClusterSettings.cluster_secret.name)
        serve_front(model, options, addresses, secret, as_json, verbose)


def serve_front(
    model: str,
    options: dict[str, Any],
    addresses: Sequence[tuple[str, int]],
    secret: str | None,
    as_json: bool,
    verbose: bool,
    check: Callable[[], None] | None = None,
) -> None:
    """Serves until a signal. check: see `build_front`."""
    from twostroke.distributed.cluster.front import no_check
    from twostroke.server.build_front import build_front

    def say(text: str) -> None:
        click.echo(f"front: {text}", err=True)

    built = build_front(model, options, addresses, secret, say, check or no_check)
    facts = built.facts
    words = f"{facts['served_name']}: {facts['replicas']} replicas, {facts['weights']} weights\n"
    serve_built(built, words, as_json, verbose)
