"""`twostroke explain`: why a request that a server has answered took as long as it did."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import click

from twostroke.cli.server.running_server import DEFAULT_URL, RunningServer, address_here
from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.types.errors import InvalidRequest

WAIT_S = 20.0


@click.command(cls=ExampleCommand, example="twostroke explain chatcmpl-0b1f4c --url http://127.0.0.1:8000")
@click.argument("request_id")
@click.option("--url", default=None, help=f"The server [default: this user's here, else {DEFAULT_URL}].")
@click.option("--api-key", default=None, help="Key of the server [env TWOSTROKE_API_KEY].")
@output_flags
@click.pass_context
def command(
    context: click.Context, request_id: str, url: str | None, api_key: str | None, as_json: bool, verbose: bool
) -> None:
    """Say why REQUEST_ID (the id of an answer) was slow to start or to stream, and what would help.

    The server must be running and must have answered it. `twostroke explain config` prints the settings.
    """
    if request_id == "config":
        from twostroke.cli.config import command as config

        context.invoke(config, model="spark", as_json=as_json, verbose=verbose)
        return
    with clear_errors(verbose):
        from twostroke.assembly.settings.env import asked_by_environment
        from twostroke.assembly.settings.server_settings import ListenSettings

        key = api_key or asked_by_environment().get(ListenSettings.api_key.name)
        answer = ask(url or address_here(), request_id, key)
        if as_json:
            print_json(answer)
        else:
            click.echo("\n\n".join(each["text"] for each in answer["completions"]))


def ask(url: str, request_id: str, api_key: str | None) -> dict[str, Any]:
    """Returns the server's answer. Raises ConfigError where there is no such server, InvalidRequest for an unknown id.
    """
    server = RunningServer(url, api_key, WAIT_S)
    try:
        with server.open(f"/v1/requests/{quote(request_id)}/explain") as got:
            answer = json.loads(got.read())
        if not isinstance(answer, dict) or "completions" not in answer:
            raise ValueError("no explanation")
        return answer
    except HTTPError as error:
        raise _refused(error, url) from None
    except (HTTPException, OSError) as error:  # the connection broke off
        raise server.silent(error) from None
    except ValueError:
        raise server.stranger() from None


def _refused(error: HTTPError, url: str) -> InvalidRequest:
    try:
        problem = json.loads(error.read())["error"]
        message, code = str(problem["message"]), str(problem["code"])
    except (ValueError, KeyError, TypeError, OSError):
        message, code = f"The server at {url} answered with status {error.code}.", ""
    of_body = "Take the id in the body of the answer, such as chatcmpl-0a1b. The header x-request-id has another one."
    fix = {"invalid_api_key": "Give --api-key.", "request_not_found": of_body}.get(code, "")
    return InvalidRequest(message, param="request_id", code=code or None, fix=fix)
