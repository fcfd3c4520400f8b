"""`twostroke serve A B`, `--models FILE`, `--models-dir FOLDER`, `--store`: several models in one server."""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.engine_settings import AdapterSettings
from twostroke.assembly.settings.option import Option
from twostroke.assembly.settings.options import MODELS_OPTIONS
from twostroke.assembly.settings.server_settings import NameSettings, SeveralSettings, TalkSettings
from twostroke.cli.server.replicas import server_options, words_of
from twostroke.cli.server.run_built import serve_built
from twostroke.types.errors import ConfigError
from twostroke.types.reading.user_path import user_path

if TYPE_CHECKING:
    from twostroke.assembly.settings.resolver import Resolver
    from twostroke.server.several.source import ModelSource

OF_ONE: tuple[Option[Any], ...] = (
    *(NameSettings.served_name, AdapterSettings.adapter, AdapterSettings.adapter_folder, TalkSettings.chat_template),
)
"""Options about one model. The command line of a server with several models may not have them, because they would count
for every model."""
ON_DEMAND_S = 300.0


def serve_several(references: Sequence[str], options: dict[str, Any], as_json: bool, verbose: bool) -> None:
    """Serves until a signal. Raises TwostrokeError."""
    from twostroke.assembly.settings.env import asked_by_environment, process_environment
    from twostroke.assembly.settings.resolver import Resolver, collect
    from twostroke.distributed.fleet.loading import LoadingRules
    from twostroke.server.several.build import Fetching, build_several
    from twostroke.server.several.group import Launch
    from twostroke.server.several.source import OF_PROCESS, ModelSource, usual_names, with_own_names

    def say(text: str) -> None:
        click.echo(f"models: {text}", err=True)

    def command(source: ModelSource, own: Mapping[str, Any], listening: int, report: int) -> list[str]:
        words = words_of({name: value for name, value in own.items() if name in OF_PROCESS})
        fds = ["--listen-fd", str(listening), "--report-fd", str(report), "--name", source.name]
        return [sys.executable, "-P", "-m", "twostroke", "replica", source.reference, *words, *fds]

    def fetched(name: str, path: str) -> ModelSource:
        return ModelSource(path, (*usual_names(name), path), _given(options), keep_s=on_demand_s)

    def pull(words: Sequence[str]) -> list[str]:
        return [sys.executable, "-P", "-m", "twostroke", "pull", *words]

    asked = Resolver(collect(_of_models(options), asked_by_environment()))
    on_demand_s = _on_demand_s(asked)
    sources = with_own_names(_sources(references, options, asked))
    secret = secrets.token_hex(32)
    environment = {
        name: value for name, value in process_environment().items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_PID")
    }
    launch = Launch(command, environment | {"TWOSTROKE_CLUSTER_SECRET": secret}, secret, say)
    most_loaded = asked.asked_value(SeveralSettings.max_loaded)
    rules = LoadingRules(
        most_loaded=math.inf if most_loaded is None else most_loaded,
        load_wait_s=asked.asked_value(SeveralSettings.load_wait) or LoadingRules().load_wait_s,
    )
    fetching = Fetching(pull, fetched) if asked.asked_value(SeveralSettings.pulls) else None
    built = build_several(sources, server_options(options), launch, rules, fetching)
    serve_built(built, f"{len(sources)} models: {', '.join(source.name for source in sources)}\n", as_json, verbose)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the command line that are about one model."""
    from twostroke.server.several.source import OF_MODEL

    return {name: value for name, value in options.items() if name in OF_MODEL and value not in (None, ())}


def _on_demand_s(asked: Resolver) -> float:
    """Returns for how many seconds a model stays loaded after a request has loaded it."""
    usual = asked.asked_value(SeveralSettings.keep_alive)
    return ON_DEMAND_S if usual is None else usual


def _of_models(options: Mapping[str, Any]) -> dict[str, Any]:
    names = {option.name for option in MODELS_OPTIONS}
    return {name: value for name, value in options.items() if name in names}


def _sources(references: Sequence[str], options: Mapping[str, Any], asked: Resolver) -> list[ModelSource]:
    """Returns the models that the server offers: first those of the command line, then those of --models, --models-dir
    and --store."""
    from twostroke.server.several.places import file_sources, folder_sources, store_sources
    from twostroke.server.several.source import ModelSource, usual_names

    given = _given(options)
    if wrong := next((option for option in OF_ONE if options.get(option.name) not in (None, ())), None):
        raise ConfigError(
            f"{wrong.flag} is about one model, and this server has several.",
            why="It would be given to each of them.",
            fix="Write a file for --models, with this option in the table of its model.",
        )
    usual, on_demand_s = asked.asked_value(SeveralSettings.keep_alive), _on_demand_s(asked)
    stays_s = math.inf if usual is None else usual
    found = [
        ModelSource(reference, usual_names(reference), given, keep_s=stays_s, at_start=True) for reference in references
    ]
    if (file := asked.asked_value(SeveralSettings.models)) is not None:
        found += file_sources(user_path(file), given, on_demand_s)
    if (folder := asked.asked_value(SeveralSettings.models_dir)) is not None:
        found += folder_sources(user_path(folder), given, on_demand_s)
    if asked.asked_value(SeveralSettings.store):
        from twostroke.cli.store.cache_place import hub_cache

        found += store_sources(hub_cache(), given, on_demand_s)
    if not found:  # only --pulls was given
        found.append(ModelSource("spark", ("spark",), given, keep_s=stays_s, at_start=True))
    return found
