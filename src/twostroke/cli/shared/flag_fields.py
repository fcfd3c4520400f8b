"""Declares the flags of a verb as fields of a dataclass. Each flag is written once, and the verb takes one object of
them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, TypeVar

import click

Group = TypeVar("Group")
_OPTION = "click option"


def flag(*names: str, **attributes: Any) -> Any:
    """Returns a field whose value is that of this option. names, attributes: the arguments that `click.option` takes.
    """
    return field(metadata={_OPTION: (names, attributes)})


def flags_of(group: type) -> tuple[Callable[[Any], Any], ...]:
    """Returns the options that are the fields of a dataclass, in their order. A command gets each value by its field's
    name."""
    made = []
    for each in fields(group):
        names, attributes = each.metadata[_OPTION]
        made.append(click.option(*names, each.name, **attributes))
    return tuple(made)


def taken(group: type[Group], options: dict[str, Any]) -> Group:
    """Takes the values of a group's flags out of a command's options, and returns them as one object."""
    return group(**{each.name: options.pop(each.name) for each in fields(group)})  # type: ignore[arg-type]


def taking(group: type, name: str = "asked") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that adds the options that are the fields of a dataclass. The command gets one object of it,
    as `name`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**options: Any) -> Any:
            return command(**{name: taken(group, options)}, **options)

        for option in reversed(flags_of(group)):
            called = option(called)
        return called

    return decorate
