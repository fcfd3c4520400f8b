"""`twostroke list`: the models on this machine."""

from __future__ import annotations

import datetime

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json


@click.command(cls=ExampleCommand, example="twostroke list")
@click.argument("text", required=False)
@output_flags
def command(text: str | None, as_json: bool, verbose: bool) -> None:
    """Show the models in the hub's cache, each by the name that `serve` takes, with its bytes; with TEXT those whose
    name contains it. No weights are opened and no network is used."""
    with clear_errors(verbose):
        from msgspec import to_builtins

        from twostroke.cli.store.cache_place import hub_cache
        from twostroke.weights.store.cached import cached_models

        cache = hub_cache()
        models = [each for each in cached_models(cache) if (text or "").lower() in each.name.lower()]
        if as_json:
            print_json({"cache": str(cache), "models": [to_builtins(model) for model in models]})
            return
        total = sum(model.num_bytes for model in models)
        click.echo(f"{cache}: {len(models)} model{'' if len(models) == 1 else 's'}, {total / 1e9:,.2f} GB")
        for model in models:
            at = datetime.datetime.fromtimestamp(model.used_s, datetime.UTC).astimezone()
            state = "" if model.whole else "  only in part: `twostroke pull` goes on"
            click.echo(f"{model.name}  {model.num_bytes / 1e9:,.2f} GB  {at:%Y-%m-%d %H:%M}{state}")
