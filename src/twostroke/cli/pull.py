"""`twostroke pull`: download a model from the hub."""

from __future__ import annotations

from dataclasses import dataclass

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.types.errors import ModelNotFound


@dataclass(frozen=True)
class PullFlags:
    """The flags of a download: the revision, the hub, the checks before the download, packing, and the form of
    progress."""

    revision: str | None = flag(
        "--revision", metavar="REV", default=None, help="Branch, tag or commit [default: main]."
    )
    endpoint: str | None = flag(
        "--endpoint", metavar="URL", default=None, help="Another hub [default: HF_ENDPOINT or the public hub]."
    )
    dry_run: bool = flag(
        "--dry-run", is_flag=True, help="Say what would be downloaded and whether it fits, and download nothing."
    )
    anyway: bool = flag("--anyway", is_flag=True, help="Download it also where it does not fit or cannot run.")
    no_pack: bool = flag("--no-pack", is_flag=True, help="Do not pack the weights: the first start does it.")
    progress_lines: bool = flag(
        "--progress-lines", is_flag=True, help="Write progress as lines of JSON on standard error, for programs."
    )


@click.command(cls=ExampleCommand, example="twostroke pull llama3.2:1b")
@click.argument("model")
@taking(PullFlags)
@output_flags
def command(model: str, asked: PullFlags, as_json: bool, verbose: bool) -> None:
    """Download MODEL (weights, tokenizer, settings; never code), after saying its size, its licence and whether it
    fits. Resumes where it stopped; pins the commit; packs the weights, so that the first start is a quick one."""
    with clear_errors(verbose):
        from twostroke.assets import spark_path
        from twostroke.cli.shared.progress import progress_bar
        from twostroke.cli.shared.progress import progress_lines as shown_as_lines
        from twostroke.cli.store.fetching import PullWish, bring, heed, pack, prospect_of
        from twostroke.weights.hub.hub import EMBEDDED

        def say(text: str) -> None:
            click.echo(text, err=as_json)

        shown = shown_as_lines if asked.progress_lines else progress_bar
        wish = PullWish(model, asked.revision, asked.endpoint, asked.anyway, say, shown)
        prospect = prospect_of(wish)
        if prospect.name == EMBEDDED:
            _tell_embedded(str(spark_path()), as_json)
            return
        if meaning := prospect.meaning(model):
            say(meaning)
        if prospect.offer is not None and not as_json:
            say(prospect.words())
        if asked.dry_run:
            if prospect.reference is not None and prospect.offer is None:
                raise ModelNotFound(
                    f"Nothing is known of {prospect.reference}.",
                    why="The hub was not asked, or did not answer.",
                    fix="Check the network and HF_HUB_OFFLINE, then ask again.",
                )
            heed(wish, prospect)
            if as_json:
                print_json(prospect.as_json())
            return
        folder = bring(wish, prospect)
        packed = None if asked.no_pack or prospect.reference is None else pack(wish, folder)
        if as_json:
            found = {"path": str(folder.path), "source": folder.source, "revision": folder.revision}
            file = folder.path.name if folder.path.is_file() else None
            print_json({**prospect.as_json(), **found, "file": file, "packed": None if packed is None else str(packed)})
        else:
            here = "This model is on this machine already: there is nothing to download."
            click.echo(f"{here if folder.revision is None else f'{folder.source} at {folder.revision}'}\n{folder.path}")


def _tell_embedded(path: str, as_json: bool) -> None:
    """Prints that the model spark is part of this package and needs no download."""
    if as_json:
        print_json({"path": path, "source": "spark", "revision": None})
    else:
        click.echo(f"spark is part of this package: there is nothing to download. Try: twostroke chat\n{path}")
