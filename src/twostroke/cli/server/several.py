"""`twostroke serve A B`, `--models FILE`, `--models-dir FOLDER`, `--store`: several models in one server."""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.options import MODELS_OPTIONS
from twostroke.cli.server.replicas import server_options, words_of
from twostroke.cli.server.run_built import serve_built
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.assembly.settings.config import Asked
    from twostroke.server.several.source import ModelSource

OF_ONE = ("served_name", "adapter", "adapter_folder", "chat_template")
"""Options that are about one model, and would be given to all."""
ON_DEMAND_S = 300.0


def serve_several(references: Sequence[str], options: dict[str, Any], as_json: bool, verbose: bool) -> None:
    """Serve until a signal. Raises TwostrokeError."""
    from twostroke.assembly.settings.config import collect
    from twostroke.assembly.settings.env import asked_by_environment, process_environment
    from twostroke.distributed.fleet.loading import LoadingRules
    from twostroke.server.several.build import build_several
    from twostroke.server.several.group import Launch
    from twostroke.server.several.source import OF_PROCESS, with_own_names

    def say(text: str) -> None:
        click.echo(f"models: {text}", err=True)

    def command(source: ModelSource, own: Mapping[str, Any], listening: int, report: int) -> list[str]:
        words = words_of({name: value for name, value in own.items() if name in OF_PROCESS})
        fds = ["--listen-fd", str(listening), "--report-fd", str(report), "--name", source.name]
        return [sys.executable, "-P", "-m", "twostroke", "replica", source.reference, *words, *fds]

    asked = collect(_of_models(options), asked_by_environment())
    sources = with_own_names(_sources(references, options, asked))
    secret = secrets.token_hex(32)
    environment = {
        name: value for name, value in process_environment().items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_PID")
    }
    launch = Launch(command, environment | {"TWOSTROKE_CLUSTER_SECRET": secret}, secret, say)
    rules = LoadingRules(
        most_loaded=asked["max_loaded"].value if "max_loaded" in asked else math.inf,
        load_wait_s=asked["load_wait"].value if "load_wait" in asked else LoadingRules().load_wait_s,
    )
    built = build_several(sources, server_options(options), launch, rules)
    serve_built(built, f"{len(sources)} models: {', '.join(source.name for source in sources)}\n", as_json, verbose)


def _of_models(options: Mapping[str, Any]) -> dict[str, Any]:
    names = {option.name for option in MODELS_OPTIONS}
    return {name: value for name, value in options.items() if name in names}


def _sources(references: Sequence[str], options: Mapping[str, Any], asked: Mapping[str, Asked]) -> list[ModelSource]:
    """Those of the command line first, then those of the file, the folder and the store."""
    from twostroke.server.several.places import file_sources, folder_sources, store_sources
    from twostroke.server.several.source import OF_MODEL, ModelSource, usual_names

    given = {name: value for name, value in options.items() if name in OF_MODEL and value not in (None, ())}
    if wrong := next((name for name in OF_ONE if options.get(name) not in (None, ())), None):
        raise ConfigError(
            f"--{wrong.replace('_', '-')} is about one model, and this server has several.",
            why="It would be given to each of them.",
            fix="Write a file for --models, with this option in the table of its model.",
        )
    usual = asked["keep_alive"].value if "keep_alive" in asked else None
    stays_s, on_demand_s = (math.inf, ON_DEMAND_S) if usual is None else (usual, usual)
    found = [
        ModelSource(reference, usual_names(reference), given, keep_s=stays_s, at_start=True) for reference in references
    ]
    if "models" in asked:
        found += file_sources(Path(asked["models"].value).expanduser(), given, on_demand_s)
    if "models_dir" in asked:
        found += folder_sources(Path(asked["models_dir"].value).expanduser(), given, on_demand_s)
    if "store" in asked and asked["store"].value:
        from twostroke.cli.store.cache_place import hub_cache

        found += store_sources(hub_cache(), given, on_demand_s)
    return found
