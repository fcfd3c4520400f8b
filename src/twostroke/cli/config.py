"""`twostroke config`: every resolved value with its reason. No weights are loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from twostroke.assembly.settings.option import Setting
from twostroke.assembly.settings.options import ADAPTER_OPTIONS, BY_NAME, ENGINE_OPTIONS, SERVER_OPTIONS
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, output_flags, print_json
from twostroke.cli.shared.talk_lines import print_talk


@click.command(cls=ExampleCommand, example="twostroke config --weights int4 --context 8k")
@click.argument("model", default="spark")
@option_flags(ENGINE_OPTIONS + SERVER_OPTIONS + ADAPTER_OPTIONS)
@click.option("--talk", is_flag=True, help="Print how the model converses: format, ends, switches, sampling.")
@output_flags
def command(model: str, talk: bool, as_json: bool, verbose: bool, **options: Any) -> None:
    """Print every setting that serving MODEL would use, and why. Reads config.json only; with --talk the chat template
    and the tokenizer, too."""
    with clear_errors(verbose):
        if talk:
            print_talk(model, as_json, options)
            return
        from twostroke.assembly.find import resolve_all

        settings = [without_secret(setting) for setting in resolve_all(model, options).settings]
        if as_json:
            print_json({s.name: {"value": s.value, "reason": s.reason} for s in settings})
            return
        name_width = max(len(s.name) for s in settings)
        value_width = max(len(shown(s.value)) for s in settings)
        for s in settings:
            click.echo(f"{s.name:<{name_width}}  {shown(s.value):<{value_width}}  {s.reason}")


def without_secret(setting: Setting[Any]) -> Setting[Any]:
    """Returns the setting. The value of a secret is replaced by "(set)"."""
    secret = setting.name in BY_NAME and BY_NAME[setting.name].secret
    return replace(setting, value="(set)") if secret and setting.value is not None else setting


def shown(value: Any) -> str:
    """Returns a setting's value as text for people: "-" for none, and commas in large numbers."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and value >= 100_000 else str(value)
