"""`twostroke front`: the HTTP server in front of replicas.

Knows: the server's run function, addresses.
Must not know: routes, engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from twostroke.cli.server.addresses import parse_address, require_secret
from twostroke.cli.server.collector import lasting_heap
from twostroke.cli.server.serve import KEY_HEADER, logging_to_stderr, try_text, watching
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, print_json
from twostroke.cli.shared.interrupt import finish_undisturbed
from twostroke.options import CLUSTER_OPTIONS, SERVER_OPTIONS


@click.command(
    cls=ExampleCommand,
    example="twostroke front meta-llama/Llama-3.2-1B-Instruct --replicas 127.0.0.1:8101,127.0.0.1:8102",
)
@click.argument("model", default="spark")
@option_flags(SERVER_OPTIONS + CLUSTER_OPTIONS)
@click.option("--replicas", required=True, help="Addresses of replicas, HOST:PORT with commas between.")
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks and the access log.")
def command(model: str, replicas: str, as_json: bool, verbose: bool, **options: Any) -> None:
    """Serve MODEL with the OpenAI API from replicas (`twostroke replica`) that run elsewhere."""
    with clear_errors(verbose):
        secret = require_secret(options)
        addresses = [parse_address(text, secret) for text in replicas.split(",")]
        options.pop("cluster_secret")
        serve_front(model, options, addresses, secret, Show(as_json, verbose))


@dataclass(frozen=True, slots=True)
class Show:
    """as_json: the start-up facts as JSON. verbose: the access log."""

    as_json: bool
    verbose: bool


def serve_front(
    model: str,
    options: dict[str, Any],
    addresses: Sequence[tuple[str, int]],
    secret: str | None,
    show: Show,
    check: Callable[[], None] | None = None,
) -> None:
    """Serve until a signal. check: see `build_front`."""
    from twostroke.cluster.front import no_check
    from twostroke.server.build_front import build_front
    from twostroke.server.serve import run

    def say(text: str) -> None:
        click.echo(f"front: {text}", err=True)

    built = build_front(model, options, addresses, secret, say, check or no_check)

    def announce(url: str) -> None:
        if show.as_json:
            print_json({"url": url, **built.facts})
        else:
            header = "" if built.resolved["api_key"] is None else KEY_HEADER
            name = built.facts["served_name"]
            click.echo(f"{name}: {built.facts['replicas']} replicas, {built.facts['weights']} weights\n", nl=False)
            click.echo(try_text(url, name, header))
        tell.send(READY="1", STATUS=f"serving {built.facts['served_name']} on {url}")

    with built, logging_to_stderr(built.resolved["log"], show.verbose), lasting_heap():
        tell, watch = watching(built.parts.door, None)
        try:
            run(built.parts, built.resolved["host"], built.resolved["port"], announce, watch)
        finally:
            finish_undisturbed()
