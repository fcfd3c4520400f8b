"""What every verb shares: help that begins with an example, options from the table, errors, exit codes.

Exit codes: 0 done; 1 unexpected failure; 2 wrong usage or request; 3 model unusable; 4 does not fit in memory;
5 native kernels missing or refused; 6 engine stopped; 7 refused, too much is waiting; 130 interrupted.

Knows: click, the options table, the exception tree.
Must not know: what a verb does.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from twostroke.options import Option
from twostroke.types.errors import (
    BackendError,
    EngineStopped,
    ModelError,
    OutOfMemory,
    Overloaded,
    TwostrokeError,
    UsageError,
)

EXIT_CODES: tuple[tuple[type[TwostrokeError], int], ...] = (
    (UsageError, 2),
    (ModelError, 3),
    (OutOfMemory, 4),
    (BackendError, 5),
    (EngineStopped, 6),
    (Overloaded, 7),
)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class ExampleCommand(click.Command):
    """A command whose help begins with an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Example, then usage, text and options."""
        formatter.write(f"Example: {self.example}\n\n")
        super().format_help(ctx, formatter)


def option_flags(options: tuple[Option, ...]) -> Callable[[Decorated], Decorated]:
    """A decorator that adds one flag for each option of the table; values stay text, config.py reads them."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            text = f"{option.help} [default: {option.default}; env TWOSTROKE_{option.name.upper()}]"
            function = click.option(option.flag, option.name, metavar=option.metavar, default=None, help=text)(function)
        return function

    return decorate


def exit_code(error: TwostrokeError) -> int:
    """The documented code of an error's class."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


@contextlib.contextmanager
def clear_errors(verbose: bool) -> Iterator[None]:
    """Print what, why and what to do, without a traceback unless asked; end with the documented code."""
    try:
        yield
    except (click.exceptions.Exit, click.ClickException, SystemExit):
        raise
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except TwostrokeError as error:
        if verbose:
            raise
        _print_error(error.what, error.why, error.fix)
        sys.exit(exit_code(error))
    except Exception as error:
        if verbose:
            raise
        _print_error(f"Unexpected failure: {type(error).__name__}: {error}", "", "Run again with -v for the traceback.")
        sys.exit(1)


def _print_error(what: str, why: str, fix: str) -> None:
    click.echo(f"error: {what}", err=True)
    for label, text in (("why", why), ("fix", fix)):
        if text:
            click.echo(f"  {label}: {text}", err=True)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def numbers(text: str) -> tuple[int, ...]:
    """ "1,4,8" -> (1, 4, 8); raises BadParameter."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of positive numbers such as 1,4,8")
    return tuple(int(part) for part in parts)
