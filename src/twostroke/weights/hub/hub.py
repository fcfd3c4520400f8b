"""Finds a model's folder or file, from a path or a hub id. From the hub it downloads safetensors, tokenizer and
configuration files, or a GGUF file, but never code.

huggingface_hub keeps the cache and the login; it is imported only when a hub id is asked for. Weights are fetched by
resume.py, which can continue inside a file. huggingface_hub fetches all other files, and makes the links from a
snapshot to its files.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from twostroke.types.errors import ConfigError, ModelError, ModelNotFound
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.types.reading.unreadable import fix_unreadable, why_unreadable
from twostroke.types.reading.user_path import user_path
from twostroke.weights.gguf.container import GgufHeader
from twostroke.weights.gguf.file_names import ENDING, chosen, first_part, parts_of, quant_of, stem_of, whole_models
from twostroke.weights.gguf.quants import usual
from twostroke.weights.hub.contact import names_in, reaches
from twostroke.weights.hub.here import at_hand
from twostroke.weights.hub.names import hub_id_of
from twostroke.weights.hub.place import HubPlace, token_for
from twostroke.weights.hub.problems import status_of, translate
from twostroke.weights.hub.progress import Meter, Progress
from twostroke.weights.hub.reference import reference_of
from twostroke.weights.hub.retries import say_once
from twostroke.weights.quantized.recipe import SIDE_FILES
from twostroke.weights.store.cached import cached_models, names_like
from twostroke.weights.store.table import near_names

if TYPE_CHECKING:
    from twostroke.weights.hub import resume
else:  # only downloads need it
    resume = LazyModule("twostroke.weights.hub.resume")

log = logging.getLogger(__name__)
WEIGHTS = ("*.safetensors",)
SETTINGS = (
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tekken.json",
    "tokenizer.model",
    "tiktoken.model",
    "*.tiktoken",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "[1-9]_*/config.json",
    *SIDE_FILES,
)
UNWANTED = ("consolidated*.safetensors", "[!1-9]*/*.safetensors", "[!1-9]*/*.json")
"""Second copies of the weights under other names, and files in subfolders. The folders of sentence-transformers' steps,
whose names begin with a number (1_Pooling), are not among them."""

EMBEDDED = "spark"
EMBEDDED_HINT = f"{EMBEDDED!r} is the small model that is part of this package"


class ModelFolder(Struct, frozen=True):
    """A model on this machine. path: a folder with config.json, or a GGUF file. source: the name or path that the user
    gave. revision: the commit of the hub's snapshot.

    headers: the headers of the GGUF file from which the folder was made, held so that each is parsed once
    (gguf/container.py).
    """

    path: Path
    source: str
    revision: str | None
    headers: tuple[GgufHeader, ...] = ()


def resolve_model(
    name_or_path: str,
    revision: str | None = None,
    offline: bool = False,
    cache_dir: Path | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    progress: Progress | None = None,
) -> ModelFolder:
    """Returns the folder of a model: a local one with config.json, or the snapshot of a hub id, downloaded where
    needed.

    The name may also stand for a GGUF file, as its path, as a folder that holds one, or as
    `hub-id:file-or-quantization`. offline: True to use only files that are on this machine. cache_dir, endpoint, token:
    None leaves the choice to huggingface_hub (HF_HOME, HF_ENDPOINT, HF_TOKEN); a login of this machine is never sent to
    another `endpoint`. Raises ModelNotFound, ConfigError (a revision of a local folder), ModelError (full disk, broken
    server).
    """
    local = user_path(name_or_path)
    found = _local_gguf(local) or (local.resolve() if _is_local(local) else None)
    if found is not None:
        if revision is not None:
            raise ConfigError(
                f"--revision {revision} was given for the local folder {local}.",
                why="Only models of a hub have revisions.",
                fix="Leave --revision out, or give a hub id.",
            )
        return ModelFolder(found, name_or_path, None)
    meant = None if _exists(local) else reference_of(name_or_path)
    if meant is None:
        raise _no_local_model(name_or_path, local)
    repo_id, revision = meant.repo_id, revision or meant.revision
    say_once()
    place = HubPlace(repo_id, revision, offline, cache_dir, endpoint, token_for(endpoint, token))
    place = at_hand(place, meant.wanted) if offline else place
    if meant.wanted:
        return _hub_gguf(place, name_or_path, meant.wanted, progress)
    path = _download(place, WEIGHTS, SETTINGS, progress)
    if (path / "config.json").is_file():
        return ModelFolder(path, name_or_path, path.name)
    return _hub_gguf(place, name_or_path, None, progress)


def resolve_config(
    name_or_path: str,
    revision: str | None = None,
    offline: bool = False,
    cache_dir: Path | None = None,
    endpoint: str | None = None,
) -> Path:
    """Returns the config.json of a model; for a hub id only this file is downloaded. For a GGUF file, returns the file
    itself.

    For arguments and errors see resolve_model.
    """
    local = user_path(name_or_path)
    meant = None if _exists(local) else reference_of(name_or_path)
    if meant is None or meant.wanted:
        found = resolve_model(name_or_path, revision, offline, cache_dir, endpoint).path
        return found if found.is_file() else found / "config.json"
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    place = HubPlace(meant.repo_id, revision or meant.revision, offline, cache_dir, endpoint, token_for(endpoint, None))
    place = at_hand(place, None) if offline else place
    say_once()
    try:
        path = hf_hub_download(
            place.repo_id,
            "config.json",
            revision=place.revision,
            cache_dir=place.cache,
            endpoint=endpoint,
            token=place.token,
            local_files_only=offline or not reaches(place, "config.json"),
        )
    except Exception as error:
        if isinstance(error, EntryNotFoundError) and status_of(error) == 404:
            raise _no_config(place.repo_id) from error
        raise translate(error, place.repo_id, place.revision, offline, place.cache) from error
    return Path(path)


def _local_gguf(local: Path) -> Path | None:
    """Returns the GGUF file that a path names: the file itself, or the GGUF file of a folder without other weights.
    Raises ModelNotFound."""
    try:
        if local.suffix.lower() == ENDING and local.is_file():
            first = local.with_name(first_part(local.name))
            return (first if first.is_file() else local).absolute()
        names = [path.name for path in local.iterdir() if path.suffix.lower() == ENDING] if local.is_dir() else []
        if not whole_models(names) or any(local.glob("*.safetensors")):
            return None
    except OSError:
        return None  # the next code that looks at the folder reports what is wrong with it
    return local.absolute() / chosen(names, None, str(local))


def _hub_gguf(place: HubPlace, source: str, wanted: str | None, progress: Progress | None) -> ModelFolder:
    """Returns the wanted GGUF file of a repository; only its parts are downloaded."""
    names = names_in(place)
    if wanted is None and not whole_models(names):
        raise _no_config(place.repo_id)
    name = meant_file(names, wanted, place.repo_id)
    if wanted is None or quant_of(name) not in (wanted.upper(), stem_of(wanted).upper()):
        log.info("%s means the file %s", source, name)
    path = _download(place, tuple(parts_of(name, names)), (), progress)
    return ModelFolder(path / name, source, path.name)


def meant_file(names: Sequence[str], wanted: str | None, repo_id: str) -> str:
    """Returns the GGUF file, or the first part of one, that `wanted` selects by its quantization or its name. Where
    `wanted` is None, returns the file of the usual quantization. Raises ModelNotFound."""
    return usual(whole_models(names), repo_id) if wanted is None else chosen(names, wanted, repo_id)


def _is_local(folder: Path) -> bool:
    """Returns whether a folder has a config.json. Raises ModelError for a folder that may not be read."""
    try:
        return (folder / "config.json").is_file()
    except OSError as error:
        fix = fix_unreadable(error, "Check the path.")
        raise ModelError(f"{folder} cannot be read.", why=why_unreadable(error), fix=fix) from None


def _exists(path: Path) -> bool:
    """Returns whether a path exists. A path that may not be read counts as existing, so that it is not taken for a hub
    id."""
    try:
        return path.exists()
    except OSError:
        return True


def _no_config(repo_id: str) -> ModelNotFound:
    return ModelNotFound(
        f"{repo_id} has no config.json.",
        why="It is not a model in the Hugging Face format, and it holds no GGUF file (it may be an adapter).",
        fix="Look for the original model that it was made from.",
    )


def _no_local_model(name: str, local: Path) -> ModelNotFound:
    if local.is_file():
        return _is_a_file(name, local)
    if local.is_dir():
        inner = sorted(child.parent for child in local.glob("*/config.json"))
        hint = f"Did you mean {inner[0]}?" if inner else "Give the folder that holds config.json, or a hub id."
        return ModelNotFound(f"{name} holds no config.json.", why="So it is not a model's folder.", fix=hint)
    if here := _names_here(name):
        why = "A model of the hub is named publisher/model, and a file of it after a colon."
        fix = f"Did you mean {' or '.join(here)}, which is on this machine?"
        return ModelNotFound(f"There is no folder {name}.", why=why, fix=fix)
    hub_id = hub_id_of(name)
    if hub_id is not None and not near_names(name):
        return ModelNotFound(
            f"{name} is no folder and no hub id.",
            why="Models come from the hub, under names of the form publisher/model.",
            fix=f"Did you mean {hub_id}?",
        )
    if local.suffix.lower() == ENDING:
        return _no_file(name, local)
    beside: list[str] = []
    with contextlib.suppress(OSError):
        beside = [path.name for path in local.parent.iterdir() if path.is_dir()]
    near = difflib.get_close_matches(local.name, [EMBEDDED, *beside], 1)
    short = [] if near else near_names(name)
    if short:
        fix = f"Did you mean {' or '.join(short)}?"
    elif near and near[0] in beside:
        fix = f"Did you mean {local.parent / near[0]}?"
    else:
        fix = f"{'Did you mean spark? ' if near else ''}Check the path, or give a hub id; {EMBEDDED_HINT}."
    why = "It is no hub id either: a hub id has the form publisher/model."
    return ModelNotFound(f"There is no folder {name}.", why=why, fix=fix)


def _no_file(name: str, local: Path) -> ModelNotFound:
    """Returns the error for a GGUF file that is not there, with the most similar file next to it."""
    files: list[str] = []
    with contextlib.suppress(OSError):
        files = [path.name for path in local.parent.iterdir() if path.suffix.lower() == ENDING]
    near = difflib.get_close_matches(local.name, files, 1)
    folder = local.absolute().parent
    why = f"The folder {folder} {'does not contain it' if folder.is_dir() else 'does not exist'}."
    fix = f"Did you mean {local.parent / near[0]}?" if near else "Check the path."
    return ModelNotFound(f"There is no file {name}.", why=why, fix=fix)


def _names_here(name: str) -> list[str]:
    """Returns the models of the hub's cache that a name without a publisher may mean."""
    from huggingface_hub import constants

    with contextlib.suppress(ConfigError):
        return names_like(name, cached_models(Path(constants.HF_HUB_CACHE)))
    return []


def _is_a_file(name: str, local: Path) -> ModelNotFound:
    beside = (local.parent / "config.json").is_file()
    return ModelNotFound(
        f"{name} is a file.",
        why="A model is a folder with config.json, or a file that ends in .gguf.",
        fix=f"Give its folder: {local.parent}" if beside else "Give the model's folder, or a hub id.",
    )


def _download(place: HubPlace, weights: tuple[str, ...], settings: tuple[str, ...], progress: Progress | None) -> Path:
    """Returns the snapshot's folder with the files of these patterns."""
    from huggingface_hub import snapshot_download

    meter = Meter(progress, place.repo_id)
    try:
        reached = not place.offline and resume.prefetch(place, weights, UNWANTED, meter)
        path = snapshot_download(
            place.repo_id,
            revision=place.revision,
            cache_dir=place.cache,
            endpoint=place.endpoint,
            token=place.token,
            local_files_only=not reached,
            allow_patterns=[*weights, *settings],
            ignore_patterns=list(UNWANTED),
            max_workers=4,
            tqdm_class=meter.bar_class(),
        )
    except Exception as error:
        raise translate(error, place.repo_id, place.revision, place.offline, place.cache) from error
    return Path(path)
