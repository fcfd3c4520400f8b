"""Where a server finds several models: a TOML file, a folder, the hub's cache. No weights are read."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from twostroke.assembly.settings.option_values import parse_keep_alive
from twostroke.assembly.settings.options import BY_NAME
from twostroke.server.several.source import OF_MODEL, ModelSource, usual_names
from twostroke.types.errors import ConfigError, InvalidRequest
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.weights.gguf.file_names import quant_of, stem_of, whole_models
from twostroke.weights.store.cached import cached_models

OWN_KEYS = ("model", "aliases", "pinned", "at_start", "keep_alive", "defaults")
"""The keys of one model's table in a --models file that concern the server of several models. All other keys are
engine options."""


def folder_sources(folder: Path, options: Mapping[str, Any], keep_s: float) -> list[ModelSource]:
    """Returns each GGUF file and each folder with config.json. Raises ConfigError when there are none."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError(
            f"--models-dir {folder} cannot be read.", why=f"{error.strerror}.", fix="Give a folder with models."
        ) from None
    files = whole_models(each.name for each in entries if each.is_file())
    folders = [each for each in entries if (each / "config.json").is_file()]
    folders += [each for each in entries if each.is_dir() and each not in folders and whole_models(_names(each))]
    found = [_of_path(folder / name, options, keep_s) for name in files]
    found += [_of_path(each, options, keep_s) for each in folders]
    if not found:
        raise ConfigError(
            f"--models-dir {folder} holds no model.",
            why="A model is a GGUF file, or a folder with config.json or a GGUF file.",
            fix="Put one there, or name another folder.",
        )
    return found


def _names(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except OSError:
        return []


def _of_path(path: Path, options: Mapping[str, Any], keep_s: float) -> ModelSource:
    stem = stem_of(path.name) if path.is_file() else path.name
    short = stem.removesuffix(quant_of(path.name)).rstrip("-._") if path.is_file() else stem
    return ModelSource(str(path), _unlike(short or stem, stem, path.name, str(path)), options, keep_s=keep_s)


def _unlike(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def store_sources(cache: Path, options: Mapping[str, Any], keep_s: float) -> list[ModelSource]:
    """Returns each model that is complete in the hub's cache. The reference of each is the path of its files, so
    nothing is downloaded. Raises ConfigError."""
    found = []
    for model in cached_models(cache):
        snapshots = cache / ("models--" + model.repo_id.replace("/", "--")) / "snapshots"
        first = next(iter(whole_models(model.files)), "config.json")
        path = next(iter(sorted(snapshots.glob(f"*/{first}"))), None)
        if model.whole and path is not None:
            place = path if path.name != "config.json" else path.parent
            names = _unlike(model.name, model.name.rpartition("/")[2], str(place))
            found.append(ModelSource(str(place), names, options, keep_s=keep_s))
    if not found:
        raise ConfigError(f"{cache} holds no model.", fix="Fetch one first: `twostroke pull NAME`.")
    return found


def file_sources(file: Path, options: Mapping[str, Any], keep_s: float) -> list[ModelSource]:
    """Returns the models of a TOML file. options: the options of the command line, which take precedence. Raises
    ConfigError."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--models {file} cannot be read.", why=f"{error.strerror}.", fix="Name a file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fix = "See docs/guides/several-models.md."
        raise ConfigError(f"--models {file} is no TOML.", why=f"{error}.", fix=fix) from None
    _known(found, ("all", "models"), f"{file}")
    common, tables = _table(found.get("all", {}), f"{file}: [all]"), _table(found.get("models", {}), f"{file}: models")
    if not tables:
        raise ConfigError(f"--models {file} names no model.", fix='Write a table for each, as [models."NAME"].')
    return [
        _of_table(name, {**common, **_table(table, _where(file, name))}, _where(file, name), options, keep_s)
        for name, table in tables.items()
    ]


def _where(file: Path, name: str) -> str:
    return f'{file}: [models."{name}"]'


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is no table.", fix="Write NAME = VALUE lines below it.")
    return value


def _known(table: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(names)}."
            raise ConfigError(f"{where} has the key {key!r}, which is not known.", fix=hint)


def _of_table(
    name: str, table: Mapping[str, Any], where: str, options: Mapping[str, Any], keep_s: float
) -> ModelSource:
    _known(table, (*OWN_KEYS, *OF_MODEL), where)
    reference, aliases = table.get("model", name), table.get("aliases", [])
    if not isinstance(reference, str) or not reference:
        raise ConfigError(f"{where}: model is no text.", fix="Write what `twostroke serve` takes.")
    if not isinstance(aliases, list) or not all(isinstance(each, str) and each and "," not in each for each in aliases):
        raise ConfigError(f"{where}: aliases is no list of names.", fix='Write aliases = ["gpt-4o-mini"].')
    pinned, at_start = (_truth(table, key, where) for key in ("pinned", "at_start"))
    given = {key: _option(key, value) for key, value in table.items() if key not in OWN_KEYS}
    usual_s = math.inf if pinned or at_start else keep_s
    return ModelSource(
        reference,
        _unlike(name, *aliases, *usual_names(reference)),
        {**given, **options},
        defaults=_defaults(table.get("defaults", {}), where),
        shown=(name, *aliases),
        keep_s=_keep_s(table["keep_alive"], where) if "keep_alive" in table else usual_s,
        pinned=pinned,
        at_start=at_start,
    )


def _truth(table: Mapping[str, Any], key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {key} is {value!r}.", fix="Write true or false.")
    return value


def _keep_s(value: Any, where: str) -> float:
    try:
        return parse_keep_alive(str(value))
    except ValueError as error:
        raise ConfigError(f"{where}: keep_alive is {value!r}: {error}.", fix='Write keep_alive = "5m".') from None


def _option(name: str, value: Any) -> Any:
    """Returns a value of the TOML file as the command line would give it: a text, or a tuple of texts for an option
    that may be repeated."""
    if not BY_NAME[name].many:
        return str(value)
    if isinstance(value, dict):
        return tuple(f"{key}={each}" for key, each in value.items())
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _defaults(value: Any, where: str) -> Mapping[str, Any]:
    """Returns the sampling values of a model in a TOML file, after a check. Raises ConfigError."""
    table = _table(value, f"{where}: defaults")
    _known(table, [each.name for each in fields(SamplingParams)], f"{where}: defaults")
    try:
        SamplingParams(**table)
    except (InvalidRequest, TypeError) as error:
        raise ConfigError(f"{where}: defaults cannot be used.", why=f"{error}", fix="Correct the value.") from None
    return table
