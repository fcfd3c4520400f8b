"""`twostroke cache gc`: finds the files in the caches that nobody needs any more."""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from twostroke.assembly.settings.option_values import parse_bytes
from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.readings import reading

PARTIALS = (".incomplete", ".twostroke-partial")
_UNITS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def parse_days(text: str) -> float:
    """ "30d", "12h", "2w" -> days. Raises ValueError."""
    number, unit = text[:-1].strip(), text[-1:].lower()
    if unit not in _UNITS or not number.replace(".", "", 1).isdigit():
        raise ValueError("write a time in hours, days or weeks, such as 12h, 30d or 2w")
    return float(number) * _UNITS[unit]


@dataclass(frozen=True)
class WasteFlags:
    """The flags of which files count as waste, and whether they are deleted."""

    older_days: float = flag(
        "--older",
        metavar="TIME",
        callback=reading(parse_days),
        default="30d",
        help="Also files that no start used for so long: 12h, 30d, 2w [default: 30d].",
    )
    keep_bytes: int | None = flag(
        "--keep",
        metavar="SIZE",
        callback=reading(parse_bytes),
        default=None,
        help="Also packed weights and pages of prompts that were used longest ago, until all take no more than this: "
        "20GB.",
    )
    pages: bool = flag("--pages", is_flag=True, help="Also all pages of prompts (`serve --kv-disk`).")
    downloads: bool = flag(
        "--downloads", is_flag=True, help="Also downloads in the hub's cache that stopped 7 days ago or more."
    )
    yes: bool = flag("--yes", is_flag=True, help="Delete them. Without it they are only listed.")
    cache: str | None = flag(
        "--cache", metavar="FOLDER", default=None, help="The cache folder [default: as for serve]."
    )


@click.command("gc", cls=ExampleCommand, example="twostroke cache gc --older 30d --yes")
@taking(WasteFlags)
@output_flags
def gc(asked: WasteFlags, as_json: bool, verbose: bool) -> None:
    """List packed files whose model is gone, that this version cannot use, or that no process used for the time of
    --older. Also list pages of prompts that no request read for that time. With --yes all of them are deleted. Files in
    use stay. The hub's cache is shared with other programs: this command never deletes its models (see `twostroke rm`),
    and deletes stopped downloads only with --downloads."""
    with clear_errors(verbose):
        from twostroke.cli.store.cache_place import hub_cache, packed_folder
        from twostroke.weights.store.kept_pages import page_waste, waste_over
        from twostroke.weights.store.unused import DAY_S, packed_waste, partial_waste, remove_waste, unfolded_waste

        folder, hub, now_s = packed_folder(asked.cache).parent, hub_cache(), time.time()
        unused_s = asked.older_days * DAY_S
        found = [*packed_waste(folder, hub, now_s, unused_s), *unfolded_waste(folder, hub)]
        found += page_waste(folder, now_s, unused_s, everything=asked.pages)
        found += [] if asked.keep_bytes is None else waste_over(folder, asked.keep_bytes, found)
        begun = partial_waste(hub, now_s, 7 * DAY_S, PARTIALS)
        found += begun if asked.downloads else []
        freed = sum(remove_waste(waste) for waste in found) if asked.yes else 0
        if as_json:
            rows = [
                {"path": str(each.path), "bytes": each.num_bytes, "why": each.why, "model": each.of} for each in found
            ]
            left = sum(each.num_bytes for each in begun)
            done = {"folder": str(folder), "removed": asked.yes, "freed_bytes": freed}
            print_json({**done, "files": rows, "stopped_bytes": left})
            return
        for waste in found:
            of = f"  (of {waste.of})" if waste.of else ""
            click.echo(f"{waste.path}  {waste.num_bytes / 1e6:,.1f} MB  {waste.why}{of}")
        total = sum(waste.num_bytes for waste in found)
        would = f"{total / 1e6:,.1f} MB would be freed; --yes deletes them."
        freed_words = f"{freed / 1e6:,.1f} MB freed." if asked.yes else would
        click.echo(freed_words if found else f"Nothing in {folder} can go.")
        if begun and not asked.downloads:
            size = sum(waste.num_bytes for waste in begun) / 1e6
            click.echo(f"{len(begun)} stopped downloads in {hub} hold {size:,.1f} MB; --downloads counts them in.")
