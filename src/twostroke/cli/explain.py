"""`twostroke explain`: why a request that a server has answered took as long as it did.

Knows: the server's address, its explain route.
Must not know: engines, how an explanation is made.
"""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import click

from twostroke.cli.command import ExampleCommand, clear_errors, print_json
from twostroke.types.errors import ConfigError, InvalidRequest

DEFAULT_URL = "http://127.0.0.1:8000"
WAIT_S = 20.0


@click.command(cls=ExampleCommand, example="twostroke explain chatcmpl-0b1f4c --url http://127.0.0.1:8000")
@click.argument("request_id")
@click.option("--url", default=DEFAULT_URL, help=f"The server [default: {DEFAULT_URL}].")
@click.option("--api-key", default=None, help="Key of the server [env TWOSTROKE_API_KEY].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
@click.pass_context
def command(
    context: click.Context, request_id: str, url: str, api_key: str | None, as_json: bool, verbose: bool
) -> None:
    """Say why REQUEST_ID (the id of an answer) was slow to start or to stream, and what would help.

    The server must be running and must have answered it. `twostroke explain config` prints the settings.
    """
    if request_id == "config":
        from twostroke.cli.config import command as config

        context.invoke(config, model="spark", as_json=as_json, verbose=verbose)
        return
    with clear_errors(verbose):
        from twostroke.env import asked_by_environment

        answer = ask(url, request_id, api_key or asked_by_environment().get("api_key"))
        if as_json:
            print_json(answer)
        else:
            click.echo("\n\n".join(each["text"] for each in answer["completions"]))


def ask(url: str, request_id: str, api_key: str | None) -> dict[str, Any]:
    """The server's answer. Raises ConfigError where there is no such server, InvalidRequest for an unknown id."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"--url {url!r} is no address of a server.", fix=f"Write it like {DEFAULT_URL}.")
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    base = url.rstrip("/").removesuffix("/v1")
    try:
        # No proxy: the server is the caller's own, and variables are read in one place only.
        opener = build_opener(ProxyHandler({}))
        with opener.open(
            Request(f"{base}/v1/requests/{quote(request_id)}/explain", headers=headers), None, WAIT_S
        ) as got:
            answer = json.loads(got.read())
        if not isinstance(answer, dict) or "completions" not in answer:
            raise ValueError("no explanation")
        return answer
    except HTTPError as error:
        raise _refused(error, url) from None
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"No server answers at {url}.",
            why=f"{getattr(reason, 'strerror', None) or reason}.",
            fix="Start it with `twostroke serve`, or give its address with --url.",
        ) from None
    except ValueError:
        raise ConfigError(
            f"What answers at {url} is not Twostroke.", fix="Give the server's address with --url."
        ) from None


def _refused(error: HTTPError, url: str) -> InvalidRequest:
    try:
        problem = json.loads(error.read())["error"]
        message, code = str(problem["message"]), str(problem["code"])
    except (ValueError, KeyError, TypeError, OSError):
        message, code = f"The server at {url} answered with status {error.code}.", ""
    fix = {"invalid_api_key": "Give --api-key.", "request_not_found": "Take the id that the answer has."}.get(code, "")
    return InvalidRequest(message, param="request_id", code=code or None, fix=fix)
