"""Code that every verb shares: help that begins with an example, options from the table, errors, exit codes.

The exit codes are:

    0 done    1 unexpected failure    2 wrong usage or request    3 model unusable    4 does not fit in memory
    5 native kernels missing or refused    6 engine stopped    7 refused, too much is waiting    130 interrupted
"""

from __future__ import annotations

import contextlib
import difflib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

from twostroke.assembly.settings.option import Option
from twostroke.cli.shared.interrupt import INTERRUPTED, interruptible
from twostroke.cli.shared.refusals import refusal_of
from twostroke.cli.shared.streams import output_problem
from twostroke.types.errors import (
    BackendError,
    EngineStopped,
    ModelError,
    ModelUnavailable,
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
    (ModelUnavailable, 7),
)

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class ExampleCommand(click.Command):
    """A command whose help begins with an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the example, then usage, text and options."""
        formatter.write(f"Example: {self.example}\n\n")
        super().format_help(ctx, formatter)


class SuggestingGroup(click.Group):
    """A group that suggests the nearest command for an unknown one."""

    synonyms: Mapping[str, str] = {}
    """The names of commands in other programs -> the command line that does the same here."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command as click does. Raises UsageError (exit code 2) for an unknown name."""
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = self.suggested(args, known)
        hint = f"Did you mean '{near}'?" if near else f"There are {', '.join(known)}."
        raise click.UsageError(f"There is no command {name!r}. {hint}", ctx)

    def suggested(self, args: list[str], known: list[str]) -> str:
        """Returns the command line to suggest for `args`, whose first word is an unknown command; "" for none. known:
        the names of the group's commands."""
        close = difflib.get_close_matches(args[0], known, 1, cutoff=0.5)
        return self.synonyms.get(args[0]) or next(iter(close), "")


def option_flags(options: tuple[Option[Any], ...]) -> Callable[[Decorated], Decorated]:
    """Returns a decorator that adds one flag for each option of the table. Values stay text, and config.py reads them.
    """

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            text = f"{option.help} [default: {option.default}; env TWOSTROKE_{option.name.upper()}]"
            kind: dict[str, Any] = (
                {"is_flag": True, "flag_value": "on"} if option.switch else {"metavar": option.metavar}
            )
            if option.many:
                kind["multiple"] = True
            function = click.option(option.flag, *option.also, option.name, default=None, help=text, **kind)(function)
        return function

    return decorate


def output_flags(function: Decorated) -> Decorated:
    """Adds --json and --verbose, for verbs that take the booleans `as_json` and `verbose`."""
    function = click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")(function)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def exit_code(error: TwostrokeError) -> int:
    """Returns the documented exit code of an error's class."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)


@contextlib.contextmanager
def clear_errors(verbose: bool) -> Iterator[None]:
    """Prints what happened, why, and what to do, without a traceback unless asked. Ends the process with the documented
    code."""
    try:
        with interruptible():
            yield
    except (click.exceptions.Exit, click.ClickException, SystemExit):
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except TwostrokeError as error:
        if verbose:
            raise
        print_error(error)
        sys.exit(exit_code(error))
    except MemoryError as error:
        if verbose:
            raise
        print_error(OutOfMemory("The system refused memory.", why=f"{error}." if str(error) else "", fix=_LESS_MEMORY))
        sys.exit(exit_code(OutOfMemory("")))
    except Exception as error:
        end_with_output_problem()
        if verbose:
            raise
        if (refusal := refusal_of(error)) is not None:
            print_error(refusal)
            sys.exit(exit_code(refusal))
        _print_error(f"Unexpected failure: {type(error).__name__}: {error}", "", "Run again with -v for the traceback.")
        sys.exit(1)


LEAST_ADDRESS_BYTES = 300_000_000
_LESS_MEMORY = "Raise the limit (ulimit -v, the container's memory), or give a smaller --kv-memory or model."


def require_addresses(allowed_bytes: int | None) -> None:
    """Raises OutOfMemory where the limit on the address space (`ulimit -v`) is too small to load the libraries of a
    verb. Without this check, some libraries would end the process by a signal."""
    if allowed_bytes is not None and allowed_bytes < LEAST_ADDRESS_BYTES:
        raise OutOfMemory(
            f"`ulimit -v` allows this process {allowed_bytes / 1e9:.2f} GB of addresses.",
            why=f"The program's libraries need {LEAST_ADDRESS_BYTES / 1e9:.2f} GB before any model is read.",
            fix="Raise the limit, or lift it: ulimit -v unlimited.",
        )


LEAST_OPEN_FILES = 16


def require_files(allowed: int | None) -> None:
    """Raises BackendError where the process may open too few files: libraries would fail halfway and print tracebacks.
    allowed: the limit of open files (`ulimit -n`); None where there is none."""
    if allowed is not None and allowed < LEAST_OPEN_FILES:
        raise BackendError(
            f"`ulimit -n` allows this process {allowed} open files.",
            why=f"The program needs {LEAST_OPEN_FILES}, and a server one more for each connection.",
            fix="Raise the limit: ulimit -n 1024.",
        )


def end_with_output_problem() -> None:
    """Ends the process with code 1 where standard output cannot be written, or with 0 where its reader has left (`|
    head`). Does nothing without a problem."""
    problem = output_problem()
    if problem is None:
        return
    if problem:
        _print_error("Standard output cannot be written.", f"{problem}.", "Send the output to another place.")
    sys.exit(1 if problem else 0)


def print_error(error: TwostrokeError) -> None:
    """Prints an error on standard error, in three lines at most."""
    _print_error(error.what, error.why, error.fix)


MOST_SHOWN = 600
"""The most characters that a line of an error shows. A name that a user gives may have thousands."""


def _print_error(what: str, why: str, fix: str) -> None:
    click.echo(f"error: {_shown(what)}", err=True)
    for label, text in (("why", why), ("fix", fix)):
        if text:
            click.echo(f"  {label}: {_shown(text)}", err=True)


def _shown(text: str) -> str:
    """Returns a text that changes no terminal: characters without a shape are written as their escapes, and the middle
    of a text that is too long is left out."""
    plain = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    half = MOST_SHOWN // 2
    return plain if len(plain) <= MOST_SHOWN else f"{plain[:half]} ... {plain[-half:]}"


def print_json(value: Any) -> None:
    """Prints one JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def numbers(text: str) -> tuple[int, ...]:
    """ "1,4,8" -> (1, 4, 8); raises BadParameter."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of positive numbers such as 1,4,8")
    return tuple(int(part) for part in parts)
