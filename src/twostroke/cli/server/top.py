"""`twostroke top`: shows in the terminal what a running server does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError

import click

from twostroke.cli.server.running_server import DEFAULT_URL, RunningServer, address_here
from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json
from twostroke.types.errors import ConfigError, InvalidRequest

WAIT_S = 40.0


@click.command(cls=ExampleCommand, example="twostroke top --url http://127.0.0.1:8000")
@click.option("--url", default=None, help=f"The server [default: this user's here, else {DEFAULT_URL}].")
@click.option("--api-key", default=None, help="Key of the server [env TWOSTROKE_API_KEY].")
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one document with --once, else one a line.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(url: str | None, api_key: str | None, once: bool, as_json: bool, verbose: bool) -> None:
    """Watch a running server: both phases' speed, what steps are made of, latency, KV cache, requests.

    Ends with Ctrl-C. The server's page shows the same and more in a browser.
    """
    with clear_errors(verbose):
        from rich.console import Console

        from twostroke.assembly.settings.env import asked_by_environment
        from twostroke.assembly.settings.server_settings import ListenSettings
        from twostroke.cli.server.top_picture import Picture

        server = _Server(url or address_here(), api_key or asked_by_environment().get(ListenSettings.api_key.name))
        picture = Picture(server.about())
        frames = server.frames()
        if once:
            picture.add(next(frames))
            if as_json:
                print_json(picture.figures())
            else:
                Console().print(picture.drawing())
        elif as_json:
            for frame in frames:
                picture.add(frame)
                click.echo(json.dumps(picture.figures(), separators=(",", ":")))
        else:
            _watch(picture, frames)


def _watch(picture: Any, frames: Iterator[dict[str, Any]]) -> None:
    from rich.live import Live

    picture.add(next(frames))
    with Live(picture.drawing(), screen=True, auto_refresh=False) as live:
        for frame in frames:
            picture.add(frame)
            live.update(picture.drawing(), refresh=True)


class _Server:
    """The engine routes of a server. Raises ConfigError where the server does not answer, InvalidRequest where it
    refuses."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._server = RunningServer(url, api_key, WAIT_S)

    def about(self) -> dict[str, Any]:
        with self._open("/v1/engine/about") as got:
            try:
                found = json.loads(got.read())
                return {"model": str(found["model"]), **found}
            except (ValueError, KeyError, TypeError):
                raise self._server.stranger() from None

    def frames(self) -> Iterator[dict[str, Any]]:
        """Yields the server's messages about its steps, for `Picture.add`. When the server stops, raises ConfigError.
        """
        with self._open("/v1/engine/steps") as got:
            try:
                for line in got:
                    if line.startswith(b"data: {"):
                        yield json.loads(line[6:])
            except (HTTPException, OSError):
                pass
        raise ConfigError(f"The server at {self._server.url} has stopped.")

    def _open(self, path: str) -> IO[bytes]:
        try:
            return self._server.open(path)
        except HTTPError as error:
            fix = "Give --api-key." if error.code == 401 else ""
            what = f"The server at {self._server.url} answered with status {error.code}."
            raise InvalidRequest(what, param="url", fix=fix) from None
