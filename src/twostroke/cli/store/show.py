"""`twostroke show`: the facts about a model on this machine."""

from __future__ import annotations

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json


@click.command(cls=ExampleCommand, example="twostroke show llama3.2:1b")
@click.argument("model", default="spark")
@click.option("--revision", metavar="REV", default=None, help="Branch, tag or commit [default: main].")
@click.option("--template", "part", flag_value="template", help="Print its chat templates alone.")
@click.option("--parameters", "part", flag_value="parameters", help="Print its sampling defaults alone.")
@click.option("--license", "part", flag_value="license", help="Print its licence alone, with its text if it is here.")
@click.option("--files", "part", flag_value="files", help="Print its files and their bytes alone.")
@output_flags
def command(model: str, revision: str | None, part: str | None, as_json: bool, verbose: bool) -> None:
    """Show architecture, parameters, quantization, context, template, licence and files of MODEL, and whether it fits.
    No weights are read and no network is used."""
    with clear_errors(verbose):
        from twostroke.cli.store.facts import facts_of
        from twostroke.cli.store.shown_parts import PARTS, words_of

        if part is not None:
            found = PARTS[part](model, revision)
            if as_json:
                print_json({part: dict(found)})
            else:
                click.echo(words_of(part, found))
            return
        facts = facts_of(model, revision)
        if as_json:
            print_json(facts.as_json())
        else:
            click.echo(f"{facts.name}\n{facts.words()}")
