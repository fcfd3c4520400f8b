"""`twostroke cache`: the packed weights and the pages of prompts that are kept on disk."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json
from twostroke.cli.shared.progress import progress_bar
from twostroke.cli.store.cache_place import packed_folder
from twostroke.cli.store.gc import gc
from twostroke.types.errors import ConfigError, CorruptModel

if TYPE_CHECKING:
    from pathlib import Path

    from twostroke.weights.packed.cache_folder import CachedFile
    from twostroke.weights.store.kept_pages import KeptPages


@click.group()
def command() -> None:
    """List, verify or remove packed weights. The first start of a model writes them, and later starts map them. `list`
    also counts pages of prompts (`serve --kv-disk`), and `gc` removes them."""


FOLDER = click.option("--cache", metavar="FOLDER", default=None, help="The cache folder [default: as for serve].")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")


@command.command("list", cls=ExampleCommand, example="twostroke cache list")
@FOLDER
@JSON
@VERBOSE
def list_files(cache: str | None, as_json: bool, verbose: bool) -> None:
    """Show each file: size, formats, the model it was made from, when it was used last and whether a process maps it
    now. Contents are not checked (`twostroke cache verify` does that). Pages of prompts are only counted."""
    with clear_errors(verbose):
        from twostroke.weights.packed.cache_folder import listed_files
        from twostroke.weights.store.kept_pages import kept_pages

        folder = packed_folder(cache)
        _print(folder, listed_files(folder), as_json, kept_pages(folder.parent))


@command.command(cls=ExampleCommand, example="twostroke cache verify")
@click.argument("names", nargs=-1)
@FOLDER
@JSON
@VERBOSE
def verify(names: tuple[str, ...], cache: str | None, as_json: bool, verbose: bool) -> None:
    """Compare every block of the named files, or of all, with its checksum. Exit code 3 where one is unusable.

    NAMES are those of `list` (a beginning is enough) or folders of models.
    """
    with clear_errors(verbose):
        from twostroke.weights.packed.cache_folder import CacheState, chosen_files, verified

        folder = packed_folder(cache)
        chosen = chosen_files(folder, names)
        with progress_bar("verify") as progress:
            found = verified(chosen, progress)
        _print(folder, found, as_json)
        bad = [file for file in found if file.state is CacheState.UNUSABLE]
        if bad:
            raise CorruptModel(
                f"{len(bad)} of {len(found)} files cannot be used.",
                why=f"{bad[0].name}: {bad[0].why}.",
                fix="Remove them with `twostroke cache rm --unusable`; the next start packs the weights again.",
            )


@command.command(cls=ExampleCommand, example="twostroke cache rm --unusable")
@click.argument("names", nargs=-1)
@click.option("--all", "take_all", is_flag=True, help="Every file.")
@click.option("--unusable", is_flag=True, help="Files of other versions and damaged ones; all blocks are compared.")
@FOLDER
@JSON
@VERBOSE
def rm(names: tuple[str, ...], take_all: bool, unusable: bool, cache: str | None, as_json: bool, verbose: bool) -> None:
    """Delete files; the next start packs again. A process that maps a file goes on using it, and its disk space becomes
    free when that process ends."""
    with clear_errors(verbose):
        from twostroke.weights.packed.cache_folder import CacheState, chosen_files, remove, verified

        if sum((bool(names), take_all, unusable)) != 1:
            raise ConfigError("What is to be deleted is not clear.", fix="Give NAMES, or --all, or --unusable.")
        folder = packed_folder(cache)
        chosen = chosen_files(folder, names)
        if unusable:
            with progress_bar("verify") as progress:
                chosen = [file for file in verified(chosen, progress) if file.state is CacheState.UNUSABLE]
        for file in chosen:
            remove(file)
        if as_json:
            print_json({"folder": str(folder), "removed": [file_json(file) for file in chosen]})
        else:
            freed = sum(file.num_bytes for file in chosen)
            click.echo(f"{len(chosen)} files removed from {folder}: {freed / 1e6:,.1f} MB.")


command.add_command(gc)


def file_json(file: CachedFile) -> dict[str, Any]:
    """Returns the file's facts as plain values."""
    return {
        "name": file.name,
        "path": str(file.path),
        "bytes": file.num_bytes,
        "used": _at(file).isoformat(timespec="seconds"),
        "in_use": file.in_use,
        "model": file.origin,
        "formats": file.formats,
        "state": str(file.state),
        "why": file.why,
    }


def _print(folder: Path, files: list[CachedFile], as_json: bool, pages: KeptPages | None = None) -> None:
    if as_json:
        counted = {} if pages is None else {"pages": _pages_json(pages)}
        print_json({"folder": str(folder), "files": [file_json(file) for file in files], **counted})
        return
    total = sum(file.num_bytes for file in files)
    click.echo(f"{folder}: {len(files)} file{'' if len(files) == 1 else 's'}, {total / 1e6:,.1f} MB")
    for file in files:
        state = str(file.state) + (f": {file.why}" if file.why else "")
        used = "in use" if file.in_use else f"last used {_at(file).astimezone():%Y-%m-%d %H:%M}"
        click.echo(f"\n{file.name}  {file.num_bytes / 1e6:,.1f} MB  {used}  {state}")
        if file.origin:
            click.echo(f"  of {file.origin}")
            click.echo(f"  {file.formats}")
    if pages is not None and pages.used_s is not None:
        last = datetime.datetime.fromtimestamp(pages.used_s, datetime.UTC).astimezone()
        click.echo(
            f"\n{pages.folder}: {len(pages.files):,} files of prompts, {pages.num_bytes / 1e6:,.1f} MB,"
            f" last used {last:%Y-%m-%d %H:%M}; `twostroke cache gc --pages --yes` removes them"
        )


def _pages_json(pages: KeptPages) -> dict[str, Any]:
    used = None if pages.used_s is None else datetime.datetime.fromtimestamp(pages.used_s, datetime.UTC)
    return {
        "folder": str(pages.folder),
        "files": len(pages.files),
        "bytes": pages.num_bytes,
        "used": None if used is None else used.isoformat(timespec="seconds"),
    }


def _at(file: CachedFile) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(file.used_s, datetime.UTC)
