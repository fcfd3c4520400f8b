"""Reads the config.json of a model to plan, without its weights. The model is the one that Twostroke brings, a folder,
a hub id, or a GGUF file, whose metadata takes the place of config.json.

For a hub id nothing else is downloaded. For a folder with quantized weights the headers of the weights are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twostroke.assembly.settings.env import hub_offline, read_machine
from twostroke.assembly.settings.names import meant
from twostroke.assets import spark_path
from twostroke.models.common.registry import read_model as read_config
from twostroke.ops.passes.scaled_keys import caches_without_bias, scalable_caches
from twostroke.ops.program.model import Model
from twostroke.runner.folder import read_folder, with_stored_dtype
from twostroke.types.errors import ConfigError, ModelError, ModelNotFound
from twostroke.weights.checkpoint import INDEX_NAME, SINGLE_NAME, Checkpoint
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.hub.hub import EMBEDDED, resolve_config
from twostroke.weights.json_file import read_object
from twostroke.weights.key_factors import KeyFactors, read_key_factors
from twostroke.weights.quantized.expected import expected_formats
from twostroke.weights.quantized.recipe import scheme_in, scheme_of
from twostroke.weights.stored import kept_sentence
from twostroke.weights.tensors import with_prefix


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model to plan. source: the name that was asked for. spec: its shape. quantized: how its weights are quantized,
    for people; "" for plain weights, or where only config.json is present. keys: the factors of its key_factors.json; K
    is divided by them before it is stored. folder: the folder of its config.json."""

    source: str
    spec: Model
    quantized: str = ""
    keys: KeyFactors | None = None
    folder: Path | None = None


def read_model(
    model: str, revision: str | None = None, endpoint: str | None = None, cache_dir: Path | None = None
) -> PlannedModel:
    """Reads the model. Raises ModelNotFound. Raises ConfigError that names the field where config.json lacks what a
    plan needs."""
    gguf, name = False, meant(model)
    if name == EMBEDDED:
        path = spark_path() / "config.json"
    else:
        path = resolve_config(name, revision, hub_offline(), cache_dir, endpoint)
        gguf = path.suffix != ".json"
        if gguf:
            path = unfold(path, read_machine().cache_folder) / "config.json"
    try:
        found = replace(_planned(model, path, gguf), folder=path.parent)
        if not gguf and not _has_weights(path.parent):
            return found
        plain = found.spec.plain
        keys = read_key_factors(path.parent, scalable_caches(plain), caches_without_bias(plain))
        spec = found.spec if gguf else with_stored_dtype(path.parent, found.spec)
        return replace(found, spec=spec, keys=keys)
    except ModelNotFound:
        raise
    except ModelError as error:
        # A plan is made from this one file. So a missing field is wrong input, not a broken model.
        raise ConfigError(f"{model}: {error.what}", why=error.why, fix=error.fix) from None


def read_header(source: str, path: Path) -> PlannedModel:
    """Reads the model of a GGUF file of which only the header may be present. Stores nothing. Raises ModelError."""
    return _planned(source, unfold(path, None) / "config.json", gguf=True)


def _planned(model: str, path: Path, gguf: bool) -> PlannedModel:
    """Reads the config.json at `path`, and the headers of quantized weights next to it. gguf: whether config.json was
    made from a GGUF file. Then the folder describes the whole model."""
    if not gguf and scheme_in(path.parent) is not None and _has_weights(path.parent):
        return _quantized(model, path.parent)
    if gguf:
        return PlannedModel(model, read_folder(path.parent))
    config = read_object(path)
    return PlannedModel(model, read_config(config, expected_formats(config)), _by_config(config))


def _by_config(config: Mapping[str, Any]) -> str:
    scheme = scheme_of(config)
    return "" if scheme is None else f"Quantized weights: {scheme.method}, sizes by config.json alone."


def _has_weights(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (SINGLE_NAME, INDEX_NAME))


def _quantized(model: str, folder: Path) -> PlannedModel:
    """Reads a folder with quantized weights. The formats of its matrices are known from the headers alone."""
    spec = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        return PlannedModel(model, spec, kept_sentence(spec, with_prefix(checkpoint, spec)) or "")
