"""`twostroke rm`: remove a model from the hub's cache."""

from __future__ import annotations

import difflib
import sys

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.types.errors import ConfigError, ModelNotFound


@click.command(cls=ExampleCommand, example="twostroke rm llama3.2:1b")
@click.argument("model")
@click.option("--dry-run", is_flag=True, help="Say what would be freed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_flags
def command(model: str, dry_run: bool, yes: bool, as_json: bool, verbose: bool) -> None:
    """Remove MODEL (an id of the hub, with :QUANT for one of its GGUF files, or a short name). Bytes that another
    repository or another revision needs stay, and are not counted."""
    with clear_errors(verbose):
        from twostroke.assembly.settings.names import meant as alias_meaning
        from twostroke.cli.store.cache_place import hub_cache
        from twostroke.weights.hub.reference import reference_of
        from twostroke.weights.store.cached import cached_models, files_meant, removal_of, remove

        cache = hub_cache()
        meant = reference_of(alias_meaning(model))
        here = cached_models(cache)
        mine = [each for each in here if meant is not None and each.repo_id == meant.repo_id]
        if meant is None or not mine:
            raise _not_here(model, [each.name for each in here])
        names = sorted({name for each in mine for name in each.files})
        wanted = None if meant.wanted is None else files_meant(names, meant.wanted)
        found = removal_of(cache, meant.repo_id, wanted) if wanted != [] else None
        if found is None:
            raise _not_here(model, [each.name for each in mine])
        said = f"{meant.text}: {found.num_bytes / 1e9:,.3f} GB in {len(found.blobs)} files"
        if not (dry_run or yes):
            _ask(said)
        if not dry_run:
            remove(found)
        if as_json:
            shown = [str(path) for path in (*found.links, *found.blobs)]
            print_json({"name": meant.text, "freed_bytes": found.num_bytes, "removed": not dry_run, "files": shown})
        else:
            click.echo(f"{'would be removed' if dry_run else 'removed'}: {said}")


def _not_here(model: str, names: list[str]) -> ModelNotFound:
    near = difflib.get_close_matches(model, names, 1, 0.5)
    fix = f"Did you mean {near[0]}?" if near else "See `twostroke list`."
    return ModelNotFound(f"{model} is not on this machine.", why="The hub's cache has no such files.", fix=fix)


def _ask(said: str) -> None:
    """Raises ConfigError where nobody can be asked, or the answer is no."""
    if not sys.stdin.isatty():
        raise ConfigError(f"Nothing was removed ({said}).", why="Nobody can be asked.", fix="Give --yes.")
    if not click.confirm(f"Remove {said}?"):
        raise ConfigError("Nothing was removed.", why="The answer was no.", fix="Give --yes to remove it unasked.")
