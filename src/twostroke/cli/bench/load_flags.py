"""Flags that the verbs of the load generator share, and the functions that read them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from twostroke.assembly.settings.option_values import parse_count
from twostroke.assembly.settings.server_settings import ListenSettings
from twostroke.cli.shared.readings import COUNT, DURATION, reading
from twostroke.types.errors import ConfigError
from twostroke.types.reading.unreadable import fix_unreadable, why_unreadable

if TYPE_CHECKING:
    from twostroke.lab.bench.load.session import Target
    from twostroke.text.tokenizer import Tokenizer

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
DEFAULT_URL = "http://127.0.0.1:8000"
MAX_TRACE_BYTES = 4 << 30


def number_list(text: str) -> tuple[int, ...]:
    """ "1,4,1k" -> (1, 4, 1000). Raises ValueError."""
    return tuple(parse_count(part) for part in text.split(","))


NUMBERS = reading(number_list)

TARGET_FLAGS = (
    click.option("--model", metavar="NAME", default=None, help="Model to ask for [default: the first that is served]."),
    click.option(
        "--route",
        type=click.Choice(["chat", "completions"]),
        default=None,
        help="What is asked [default: chat; completions of a model without a chat template].",
    ),
    click.option("--api-key", metavar="KEY", default=None, help="Sent as a bearer token [env: TWOSTROKE_API_KEY]."),
    click.option(
        "--tokenizer",
        metavar="FOLDER",
        default=None,
        help="The model's folder, or spark: counts prompt tokens [default: the server's usage does].",
    ),
    click.option("--respect-eos", is_flag=True, help="Answers may end early: ignore_eos is not asked for."),
    click.option("--body", metavar="JSON", default=None, help="Fields to add to each request; null leaves one out."),
    click.option(
        "--timeout",
        metavar="TIME",
        callback=DURATION,
        default="600s",
        help="Longest silence of the server [default: 600s].",
    ),
    click.option("--seed", default=0, help="Seed of arrivals, lengths and words [default: 0]."),
    click.option("--warmup", type=click.IntRange(0), default=2, help="Requests before the measurement [default: 2]."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("-v", "--verbose", is_flag=True, help="Show tracebacks."),
)


def flags(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Returns one decorator that applies all of these decorators, in their order."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def count_flag(name: str, text: str, default: str | None = None) -> Callable[[Decorated], Decorated]:
    """Returns an option that is a positive count, such as 100 or 4k."""
    return click.option(name, metavar="COUNT", callback=COUNT, default=default, help=text)


def time_flag(name: str, text: str) -> Callable[[Decorated], Decorated]:
    """Returns an option that is a time, such as 50ms."""
    return click.option(name, metavar="TIME", callback=DURATION, default=None, help=text)


def read_target(url: str, options: dict[str, Any]) -> Target:
    """Returns the target that the shared flags name. Raises ConfigError. Raises ModelError for a tokenizer that cannot
    be read."""
    from twostroke.assembly.settings.env import asked_by_environment
    from twostroke.lab.bench.load.session import Target

    return Target(
        url=url,
        model=options["model"],
        api_key=options["api_key"] or asked_by_environment().get(ListenSettings.api_key.name),
        route=options["route"],
        exact=not options["respect_eos"],
        extra=_read_body(options["body"]),
        silence_s=options["timeout"],
        tokenizer=_read_tokenizer(options["tokenizer"]),
    )


def read_file(path: Path, option: str = "--trace ") -> str:
    """Returns the text of a trace, from a file or a pipe. Raises ConfigError where it cannot be read."""
    what = f"{option}{path} cannot be read."
    try:
        with path.open("rb") as file:
            if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
                raise ConfigError(what, why="It is a device, and may never end.", fix="Give a file.")
            found = file.read(MAX_TRACE_BYTES + 1)
        if len(found) > MAX_TRACE_BYTES:
            raise ConfigError(f"{option}{path} is larger than {MAX_TRACE_BYTES >> 30} GiB.", fix="Give a part of it.")
        return found.decode()
    except (OSError, UnicodeDecodeError) as error:
        fix = fix_unreadable(error, "Give a file with a trace.")
        raise ConfigError(what, why=why_unreadable(error), fix=fix) from None


def _read_body(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"--body {text[:60]!r} is no JSON object.", fix="""Write one such as '{"top_p": 0.9}'.""")
    return value


def _read_tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from twostroke.assets import spark_path
    from twostroke.text.tokenizer import Tokenizer
    from twostroke.weights.hub.hub import EMBEDDED

    return Tokenizer.from_folder(spark_path() if name == EMBEDDED else name)
