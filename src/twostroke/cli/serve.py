"""`twostroke serve`: the HTTP server.

Knows: assemble, the server's run function.
Must not know: routes, engines.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from twostroke.cli.command import ExampleCommand, clear_errors, option_flags, print_json
from twostroke.cli.progress import progress_bar
from twostroke.options import ENGINE_OPTIONS, SERVER_OPTIONS


@click.command(
    cls=ExampleCommand, example="twostroke serve meta-llama/Llama-3.2-1B-Instruct --weights int4 --port 8000"
)
@click.argument("model", default="spark")
@option_flags(ENGINE_OPTIONS + SERVER_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Print the start-up facts as one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks and the access log.")
def command(model: str, as_json: bool, verbose: bool, **options: Any) -> None:
    """Serve MODEL (a folder, a hub id, or the embedded 'spark') with the OpenAI API on 127.0.0.1:8000."""
    with clear_errors(verbose):
        from twostroke.server.build import build_server
        from twostroke.server.serve import run

        with progress_bar("load") as progress:
            built = build_server(model, options, progress)

        def announce(url: str) -> None:
            if as_json:
                print_json({"url": url, **built.facts})
            else:
                click.echo(start_text(url, built.facts))

        with built, logging_to_stderr(built.resolved["log"], verbose):
            run(built.parts, built.resolved["host"], built.resolved["port"], announce)


@contextmanager
def logging_to_stderr(form: str, verbose: bool) -> Iterator[None]:
    """Requests' lines are written as JSON, or, as text, where somebody wants them."""
    from twostroke.server.logs import JsonLines, TextLines, set_up, tear_down

    lines = JsonLines() if form == "json" else TextLines()
    level = logging.INFO if verbose or form == "json" else logging.WARNING
    handler = set_up(lines, level, sys.stderr)
    try:
        yield
    finally:
        tear_down(handler)


def start_text(url: str, facts: dict[str, Any]) -> str:
    """What a newcomer needs to know, and a line to try."""
    messages = [{"role": "user", "content": "What is prefill?"}]
    body = json.dumps({"model": facts["served_name"], "messages": messages})
    return (
        f"{facts['served_name']}: {facts['weights']} weights, {facts['weight_bytes'] / 1e6:,.0f} MB; "
        f"{facts['threads']} threads, {facts['cpu_level']} kernels\n"
        f"{facts['room']}\n"
        f"Serving on {url}  (OpenAI base URL: {url}/v1)\n\n"
        f"Try:\n  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n"
    )
