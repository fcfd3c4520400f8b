"""`twostroke ps`: the models that a running server has loaded."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError

import click

from twostroke.cli.server.running_server import DEFAULT_URL, RunningServer
from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json
from twostroke.types.errors import ConfigError

WAIT_S = 5.0


@click.command(cls=ExampleCommand, example="twostroke ps")
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Address of the server; unix:PATH for a socket.")
@click.option("--api-key", metavar="KEY", default=None, help="The server's API key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(url: str, api_key: str | None, as_json: bool, verbose: bool) -> None:
    """Show the models that the server has loaded: name, bytes of weights, format, context."""
    with clear_errors(verbose):
        server = RunningServer(url, api_key, WAIT_S)
        models = _models(server)
        if as_json:
            print_json({"url": url, "models": models})
            return
        for model in models:
            details = model["details"]
            size = f"{model['size'] / 1e9:,.2f} GB" if model["size"] else "size unknown"
            click.echo(
                f"{model['name']}  {details['parameter_size']} parameters  {size}  {details['quantization_level']}  "
                f"context {model['context_length']:,}"
            )


def _models(server: RunningServer) -> list[dict[str, Any]]:
    try:
        with server.open("/api/ps") as answer:
            return list(json.load(answer)["models"])
    except HTTPError as error:
        if error.code == 401:
            raise ConfigError(
                "The server wants an API key.", why="It was started with one.", fix="Give it with --api-key."
            ) from None
        raise server.stranger() from None
    except (ValueError, KeyError, TypeError):
        raise server.stranger() from None
