"""`twostroke pull`: download a model from the hub."""

from __future__ import annotations

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json
from twostroke.cli.shared.progress import progress_bar


@click.command(cls=ExampleCommand, example="twostroke pull meta-llama/Llama-3.2-1B-Instruct --revision main")
@click.argument("model")
@click.option("--revision", metavar="REV", default=None, help="Branch, tag or commit [default: main].")
@click.option("--endpoint", metavar="URL", default=None, help="Another hub [default: HF_ENDPOINT or the public hub].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(model: str, revision: str | None, endpoint: str | None, as_json: bool, verbose: bool) -> None:
    """Download MODEL (safetensors, tokenizer, settings; never code). Resumes where it stopped; pins the commit."""
    with clear_errors(verbose):
        from twostroke.assembly.settings.env import hub_offline
        from twostroke.assets import spark_path
        from twostroke.weights.hub.hub import EMBEDDED, resolve_model
        from twostroke.weights.hub.reference import reference_of

        if model == EMBEDDED:
            _tell_embedded(str(spark_path()), as_json)
            return

        meant = reference_of(model)
        if meant is not None and meant.text != model and not as_json:
            click.echo(f"{model} = {meant.text}")
        with progress_bar("download") as progress:
            folder = resolve_model(
                model, revision=revision, offline=hub_offline(), endpoint=endpoint, progress=progress
            )
        if as_json:
            name = None if meant is None else meant.text
            found = {"path": str(folder.path), "source": folder.source, "revision": folder.revision}
            print_json({**found, "reference": name, "file": folder.path.name if folder.path.is_file() else None})
        else:
            click.echo(f"{folder.source} at {folder.revision or 'a local folder'}\n{folder.path}")


def _tell_embedded(path: str, as_json: bool) -> None:
    """The embedded model is here already."""
    if as_json:
        print_json({"path": path, "source": "spark", "revision": None})
    else:
        click.echo(f"spark is part of this package: there is nothing to download. Try: twostroke chat\n{path}")
