"""`twostroke ps`: the models that running servers have loaded."""

from __future__ import annotations

import datetime
import json
from typing import Any
from urllib.error import HTTPError

import click

from twostroke.cli.server.running_server import DEFAULT_URL, RunningServer
from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.server_records import ServerRecord, local_servers
from twostroke.types.errors import ConfigError

WAIT_S = 5.0
STAYS = datetime.timedelta(days=365)
"""A model that is to be unloaded later than this is shown as one that stays loaded."""


@click.command(cls=ExampleCommand, example="twostroke ps")
@click.option("--url", default=None, help="Address of one server; unix:PATH for a socket [default: this user's here].")
@click.option("--api-key", metavar="KEY", default=None, help="The server's API key.")
@output_flags
def command(url: str | None, api_key: str | None, as_json: bool, verbose: bool) -> None:
    """Show the models that servers have loaded: name, bytes of weights, format, context, and the time when an unused
    model is unloaded. Without --url, the servers are those that this user has started on this machine, or the server at
    the usual address."""
    with clear_errors(verbose):
        here = [] if url is not None else local_servers()
        if not here:
            only = url or DEFAULT_URL
            shown = [_of_one(only, _models(RunningServer(only, api_key, WAIT_S)))]
        else:
            shown = [_of_record(record, api_key) for record in here]
        if as_json:
            print_json({**shown[0], "servers": shown})
            return
        for server in shown:
            pid = f"  process {server['pid']}" if server["pid"] else ""
            for model in server["models"]:
                click.echo(f"{_line(model)}  {server['url']}{pid}")
            problem = server["problem"] or ("" if server["models"] else "nothing is loaded")
            if problem:
                click.echo(f"{' '.join(server['names'])}  {server['url']}{pid}  {problem}")


def _of_one(url: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    return {"url": url, "pid": None, "names": [model["name"] for model in models], "models": models, "problem": ""}


def _of_record(record: ServerRecord, api_key: str | None) -> dict[str, Any]:
    """Returns what a server of this user reports about its models, or the problem where it does not answer."""
    models, problem = [], ""
    try:
        models = _models(RunningServer(record.url, api_key, WAIT_S))
    except ConfigError as error:
        problem = error.what
    return {**_of_one(record.url, models), "pid": record.pid, "names": list(record.names), "problem": problem}


def _line(model: dict[str, Any]) -> str:
    details = model["details"]
    size = f"{model['size'] / 1e9:,.2f} GB" if model["size"] else "size unknown"
    return (
        f"{model['name']}  {details['parameter_size']} parameters  {size}  {details['quantization_level']}  "
        f"context {model['context_length']:,}{_until(model)}"
    )


def _until(model: dict[str, Any]) -> str:
    """Returns when the model is unloaded if no request comes; empty where it stays loaded."""
    try:
        at = datetime.datetime.fromisoformat(str(model.get("expires_at")))
    except ValueError:
        return ""
    if at.tzinfo is None or at - datetime.datetime.now(datetime.UTC) > STAYS:
        return ""
    return f"  until {at.astimezone():%H:%M:%S}"


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
