"""`twostroke show`: the facts about a model on this machine."""

from __future__ import annotations

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json


@click.command(cls=ExampleCommand, example="twostroke show llama3.2:1b")
@click.argument("model", default="spark")
@click.option("--revision", metavar="REV", default=None, help="Branch, tag or commit [default: main].")
@output_flags
def command(model: str, revision: str | None, as_json: bool, verbose: bool) -> None:
    """Show architecture, parameters, quantization, context, template, licence and files of MODEL, and whether it fits.
    No weights are read and no network is used."""
    with clear_errors(verbose):
        from twostroke.cli.store.facts import facts_of

        facts = facts_of(model, revision)
        if as_json:
            print_json(facts.as_json())
        else:
            click.echo(f"{facts.name}\n{facts.words()}")
