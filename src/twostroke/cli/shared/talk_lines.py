"""Prints how a model converses (its chat template, tool calls, thinking, stop tokens), for `config --talk` and for
`doctor MODEL`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from twostroke.cli.shared.command import print_json


def print_talk(model: str, as_json: bool, options: Mapping[str, Any]) -> None:
    """Prints how the model converses, as lines or as JSON. Raises TwostrokeError."""
    from msgspec import to_builtins

    from twostroke.assembly.talk import lines, talk_of

    talk = talk_of(model, options)
    if as_json:
        print_json(to_builtins(talk))
        return
    told = lines(talk)
    width = max(len(name) for name, _ in told)
    for name, text in told:
        click.echo(f"{name:<{width}}  {text}")
