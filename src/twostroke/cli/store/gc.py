"""`twostroke cache gc`: what of the caches nobody needs any more."""

from __future__ import annotations

import time

import click

from twostroke.assembly.settings.option_values import parse_bytes
from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json
from twostroke.cli.shared.readings import reading

PARTIALS = (".incomplete", ".twostroke-partial")
_UNITS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def parse_days(text: str) -> float:
    """ "30d", "12h", "2w" -> days. Raises ValueError."""
    number, unit = text[:-1].strip(), text[-1:].lower()
    if unit not in _UNITS or not number.replace(".", "", 1).isdigit():
        raise ValueError("write a time in hours, days or weeks, such as 12h, 30d or 2w")
    return float(number) * _UNITS[unit]


@click.command("gc", cls=ExampleCommand, example="twostroke cache gc --older 30d --yes")
@click.option(
    "--older",
    "older_days",
    metavar="TIME",
    callback=reading(parse_days),
    default="30d",
    help="Also files that no start used for so long: 12h, 30d, 2w [default: 30d].",
)
@click.option(
    "--keep",
    "keep_bytes",
    metavar="SIZE",
    callback=reading(parse_bytes),
    default=None,
    help="Also packed weights and pages of prompts that were used longest ago, until all take no more than this: 20GB.",
)
@click.option("--pages", is_flag=True, help="Also all pages of prompts (`serve --kv-disk`).")
@click.option("--downloads", is_flag=True, help="Also downloads in the hub's cache that stopped 7 days ago or more.")
@click.option("--yes", is_flag=True, help="Delete them. Without it they are only listed.")
@click.option("--cache", metavar="FOLDER", default=None, help="The cache folder [default: as for serve].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def gc(
    older_days: float,
    keep_bytes: int | None,
    pages: bool,
    downloads: bool,
    yes: bool,
    cache: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """List packed files whose model is gone, that this version cannot use, or that no start used for a time; with --yes
    delete them. Pages of prompts that no request read for so long go too. Files in use stay. The hub's cache is shared
    with other programs: models there are never deleted here (`twostroke rm`), and stopped downloads only with
    --downloads."""
    with clear_errors(verbose):
        from twostroke.cli.store.cache_place import hub_cache, packed_folder
        from twostroke.weights.store.kept_pages import page_waste, waste_over
        from twostroke.weights.store.unused import DAY_S, packed_waste, partial_waste, remove_waste, unfolded_waste

        folder, hub, now_s = packed_folder(cache).parent, hub_cache(), time.time()
        found = [*packed_waste(folder, hub, now_s, older_days * DAY_S), *unfolded_waste(folder, hub)]
        found += page_waste(folder, now_s, older_days * DAY_S, everything=pages)
        found += [] if keep_bytes is None else waste_over(folder, keep_bytes, found)
        begun = partial_waste(hub, now_s, 7 * DAY_S, PARTIALS)
        found += begun if downloads else []
        freed = sum(remove_waste(waste) for waste in found) if yes else 0
        if as_json:
            rows = [
                {"path": str(each.path), "bytes": each.num_bytes, "why": each.why, "model": each.of} for each in found
            ]
            left = sum(each.num_bytes for each in begun)
            print_json(
                {"folder": str(folder), "removed": yes, "freed_bytes": freed, "files": rows, "stopped_bytes": left}
            )
            return
        for waste in found:
            of = f"  (of {waste.of})" if waste.of else ""
            click.echo(f"{waste.path}  {waste.num_bytes / 1e6:,.1f} MB  {waste.why}{of}")
        total = sum(waste.num_bytes for waste in found)
        done = f"{freed / 1e6:,.1f} MB freed." if yes else f"{total / 1e6:,.1f} MB would be freed; --yes deletes them."
        click.echo(done if found else f"Nothing in {folder} can go.")
        if begun and not downloads:
            size = sum(waste.num_bytes for waste in begun) / 1e6
            click.echo(f"{len(begun)} stopped downloads in {hub} hold {size:,.1f} MB; --downloads counts them in.")
