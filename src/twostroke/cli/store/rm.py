"""`twostroke rm`: remove models from the hub's cache."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.types.errors import ConfigError, ModelNotFound
from twostroke.types.reading.user_path import is_there, user_path

if TYPE_CHECKING:
    from twostroke.weights.hub.reference import Reference
    from twostroke.weights.store.cached import CachedModel, Removal


@click.command(cls=ExampleCommand, example="twostroke rm llama3.2:1b")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say what would be freed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_flags
def command(models: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool, verbose: bool) -> None:
    """Remove each MODEL (an id of the hub, with :QUANT for one of its GGUF files, or a short name). Bytes that another
    repository or another revision needs stay, and are not counted. A model that a running server of this user serves is
    not removed."""
    with clear_errors(verbose):
        from twostroke.assembly.settings.env import read_machine
        from twostroke.cli.store.cache_place import hub_cache
        from twostroke.weights.store.cached import cached_models, remove
        from twostroke.weights.store.records import RECORDS, forget_record

        cache = hub_cache()
        here = cached_models(cache)
        meant = [_meant(model, cache, here) for model in models]  # all models are found before the first one is removed
        if not dry_run:
            for each in meant:
                _check_unused(each)
            if not yes:
                _ask("; ".join(_words(each, each.removal()) for each in meant))
        shown: list[dict[str, Any]] = []
        for each in meant:
            found = each.removal()
            if not dry_run:
                remove(found)
                forget_record(read_machine().cache_folder / RECORDS, each.reference.text)
            paths = [str(path) for path in (*found.links, *found.blobs)]
            freed = {"name": each.reference.text, "freed_bytes": found.num_bytes}
            shown.append({**freed, "removed": not dry_run, "files": paths})
            if not as_json:
                click.echo(f"{'would be removed' if dry_run else 'removed'}: {_words(each, found)}")
        if as_json:
            total = sum(each["freed_bytes"] for each in shown)
            print_json(shown[0] if len(shown) == 1 else {"freed_bytes": total, "models": shown})


@dataclass(frozen=True)
class _Meant:
    """The model in the hub's cache that the user named. files: its files; None for the whole repository."""

    reference: Reference
    cache: Path
    files: list[str] | None

    def removal(self) -> Removal:
        """Returns the files that can be removed now; none where the model has been removed already. A file that another
        model shares stays."""
        from twostroke.weights.store.cached import Removal, removal_of

        return removal_of(self.cache, self.reference.repo_id, self.files) or Removal((), (), 0)


def _meant(model: str, cache: Path, here: list[CachedModel]) -> _Meant:
    """Returns the model that a user has named. here: the models in the cache. Raises ModelNotFound, and ConfigError for
    a model that cannot be removed."""
    from msgspec.structs import replace

    from twostroke.assembly.folders import SHIPPED
    from twostroke.assembly.settings.names import meant as alias_meaning
    from twostroke.weights.hub.here import spelled
    from twostroke.weights.hub.reference import reference_of
    from twostroke.weights.store.cached import files_meant, revisions_of

    name = alias_meaning(model)
    if name in SHIPPED:
        raise ConfigError(f"{model} is part of this package.", why="It takes up no room in the hub's cache.")
    if is_there(name):
        raise _own_files(model, user_path(name))
    reference = reference_of(name)
    if reference is None:
        raise _not_here(model, here)
    reference = replace(reference, repo_id=spelled(reference.repo_id, cache))
    mine = [each for each in here if each.repo_id == reference.repo_id]
    if not mine:
        raise _not_here(model, here)
    if reference.revision is not None and len(revisions_of(cache, reference.repo_id)) > 1:
        raise _several_revisions(reference)
    names = sorted({name for each in mine for name in each.files})
    files = None if reference.wanted is None else files_meant(names, reference.wanted)
    if files == []:
        raise _not_here(model, mine)
    return _Meant(reference, cache, files)


def _own_files(model: str, path: Path) -> ConfigError:
    return ConfigError(
        f"{model} is a {'folder' if path.is_dir() else 'file'} of your own.",
        why="`rm` removes models that were downloaded to the hub's cache, and nothing else.",
        fix=f"Delete {path} as any other file, and then `twostroke cache gc` what was made of it.",
    )


def _several_revisions(reference: Reference) -> ConfigError:
    from msgspec.structs import replace

    plain = replace(reference, revision=None).text
    return ConfigError(
        f"{reference.text} is one of several revisions on this machine.",
        why="They share files, so one of them is not removed alone.",
        fix=f"Remove all of them: twostroke rm {plain}",
    )


def _check_unused(meant: _Meant) -> None:
    """Raises ConfigError where a server of this user runs with these files, because it needs them for a reload."""
    from twostroke.assembly.settings.names import meant as alias_meaning
    from twostroke.cli.shared.server_records import local_servers
    from twostroke.weights.gguf.file_names import quant_of
    from twostroke.weights.hub.reference import reference_of

    own = meant.reference
    for record in local_servers():
        for name in (record.model, *record.names):
            other = reference_of(alias_meaning(name)) if name else None
            if other is None or other.repo_id.lower() != own.repo_id.lower():
                continue
            if own.wanted is None or other.wanted is None or quant_of(own.wanted) == quant_of(other.wanted):
                raise ConfigError(
                    f"{own.text} is in use.",
                    why=f"The server at {record.url} (process {record.pid}) has {name}.",
                    fix=f"End it first: twostroke stop {name}",
                )


def _words(meant: _Meant, found: Removal) -> str:
    return f"{meant.reference.text}: {found.num_bytes / 1e9:,.3f} GB in {len(found.blobs)} files"


def _not_here(model: str, here: list[CachedModel]) -> ModelNotFound:
    from twostroke.weights.store.cached import names_like

    near = names_like(model, here) or difflib.get_close_matches(model, [each.name for each in here], 1, 0.5)
    fix = f"Did you mean {' or '.join(near)}?" if near else "See `twostroke list`."
    return ModelNotFound(f"{model} is not on this machine.", why="The hub's cache has no such files.", fix=fix)


def _ask(said: str) -> None:
    """Asks the user. said: the models and their sizes. Raises ConfigError where nobody can be asked, or the answer is
    no."""
    if not sys.stdin.isatty():
        raise ConfigError(f"Nothing was removed ({said}).", why="Nobody can be asked.", fix="Give --yes.")
    if not click.confirm(f"Remove {said}?"):
        raise ConfigError("Nothing was removed.", why="The answer was no.", fix="Give --yes to remove it unasked.")
