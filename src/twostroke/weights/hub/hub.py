"""A model's folder or file, from a path or a hub id. Downloads safetensors, tokenizer and settings, or GGUF; no code.

huggingface_hub keeps the cache and the login; it is imported only when a hub id is asked for. Weights are fetched by
hub_resume, which can go on inside a file; everything else, and the snapshot's links, by huggingface_hub.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from twostroke.types.errors import ConfigError, ModelError, ModelNotFound
from twostroke.types.lazy_module import LazyModule
from twostroke.types.unreadable import fix_unreadable, why_unreadable
from twostroke.weights.gguf.container import GgufHeader
from twostroke.weights.gguf.file_names import ENDING, chosen, first_part, parts_of, quant_of, stem_of, whole_models
from twostroke.weights.gguf.quants import usual
from twostroke.weights.hub.names import hub_id_of
from twostroke.weights.hub.progress import Meter, Progress
from twostroke.weights.hub.reference import reference_of
from twostroke.weights.quantized.recipe import SIDE_FILES
from twostroke.weights.store.table import near_names

if TYPE_CHECKING:
    from twostroke.weights.hub import resume
else:  # for downloads alone
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
"""Second copies of the weights under other names, and whatever lies in subfolders, but for the steps of
sentence-transformers, whose folders begin with a number (1_Pooling)."""

EMBEDDED = "spark"
EMBEDDED_HINT = f"{EMBEDDED!r} is the small model that is part of this package"
DEFAULT_ENDPOINT = "https://huggingface.co"


class ModelFolder(Struct, frozen=True):
    """path: holds config.json, or is a GGUF file. source: what was asked for. revision: a snapshot's commit.

    headers: of the GGUF file that the folder was unfolded from, held so that each is parsed once (gguf/container.py).
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
    """The folder of a model: a local one with config.json, or the snapshot of a hub id, downloaded where needed.

    A GGUF file may be meant too: by its path, by a folder that holds one, by `hub-id:file-or-quantization`.
    offline: use what is already there. cache_dir, endpoint, token: None leaves the choice to huggingface_hub (HF_HOME,
    HF_ENDPOINT, HF_TOKEN); a login of this machine is never sent to another `endpoint`. Raises ModelNotFound,
    ConfigError (a revision of a local folder), ModelError (full disk, broken server).
    """
    local = Path(name_or_path).expanduser()
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
    elsewhere = endpoint is not None and token is None and endpoint.rstrip("/") != DEFAULT_ENDPOINT
    place = _Place(repo_id, revision, offline, cache_dir, endpoint, False if elsewhere else token)
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
    """The config.json of a model; of a hub id this one file is downloaded and nothing else. A GGUF file is its own.

    Arguments and errors as of resolve_model.
    """
    local = Path(name_or_path).expanduser()
    meant = None if _exists(local) else reference_of(name_or_path)
    if meant is None or meant.wanted:
        found = resolve_model(name_or_path, revision, offline, cache_dir, endpoint).path
        return found if found.is_file() else found / "config.json"
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    folder = cache_dir or Path(constants.HF_HUB_CACHE)
    elsewhere = endpoint is not None and endpoint.rstrip("/") != DEFAULT_ENDPOINT
    name_or_path, revision = meant.repo_id, revision or meant.revision
    try:
        path = hf_hub_download(
            name_or_path,
            "config.json",
            revision=revision,
            cache_dir=folder,
            endpoint=endpoint,
            token=False if elsewhere else None,
            local_files_only=offline,
        )
    except Exception as error:
        if isinstance(error, EntryNotFoundError) and _status(error) == 404:
            raise _no_config(name_or_path) from error
        raise _translate(error, name_or_path, revision, offline, folder) from error
    return Path(path)


class _Place(Struct, frozen=True):
    """A repository of a hub, and how it is reached; see resolve_model."""

    repo_id: str
    revision: str | None
    offline: bool
    cache_dir: Path | None
    endpoint: str | None
    token: str | bool | None

    @property
    def cache(self) -> Path:
        """The folder of all models."""
        from huggingface_hub import constants

        return self.cache_dir or Path(constants.HF_HUB_CACHE)


def _local_gguf(local: Path) -> Path | None:
    """The GGUF file that a path means: itself, or the one of a folder without other weights. Raises ModelNotFound."""
    try:
        if local.suffix.lower() == ENDING and local.is_file():
            first = local.with_name(first_part(local.name))
            return (first if first.is_file() else local).absolute()
        names = [path.name for path in local.iterdir() if path.suffix.lower() == ENDING] if local.is_dir() else []
        if not whole_models(names) or any(local.glob("*.safetensors")):
            return None
    except OSError:
        return None  # what is wrong with the folder is said where it is looked at next
    return local.absolute() / chosen(names, None, str(local))


def _hub_gguf(place: _Place, source: str, wanted: str | None, progress: Progress | None) -> ModelFolder:
    """The GGUF file of a repository that is meant; its parts are downloaded and nothing else."""
    names = _names(place)
    if wanted is None and not whole_models(names):
        raise _no_config(place.repo_id)
    name = usual(whole_models(names), place.repo_id) if wanted is None else chosen(names, wanted, place.repo_id)
    if wanted is None or quant_of(name) not in (wanted.upper(), stem_of(wanted).upper()):
        log.info("%s means the file %s", source, name)
    path = _download(place, tuple(parts_of(name, names)), (), progress)
    return ModelFolder(path / name, source, path.name)


def _names(place: _Place) -> list[str]:
    """All files of a repository; offline, or where the hub does not answer, those that are here."""
    from huggingface_hub import HfApi

    if place.offline:
        return _names_here(place)
    try:
        api = HfApi(endpoint=place.endpoint, token=place.token)
        return api.list_repo_files(place.repo_id, revision=place.revision)
    except Exception as error:
        status = _status(error)
        if status is None or status >= 500:
            with contextlib.suppress(ModelError):
                return _names_here(place)
        raise _translate(error, place.repo_id, place.revision, place.offline, place.cache) from error


def _names_here(place: _Place) -> list[str]:
    """The files of the snapshot in the cache. Raises ModelNotFound where there is none."""
    folder = place.cache / ("models--" + place.repo_id.replace("/", "--"))
    named = folder / "refs" / (place.revision or "main")
    commit = named.read_text().strip() if named.is_file() else place.revision or ""
    snapshot = folder / "snapshots" / commit
    if not commit or not snapshot.is_dir():
        raise _not_there(
            f"{place.repo_id} is not on this machine.", place.offline, "", _nearest(place.repo_id, place.cache)
        )
    return [str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.suffix.lower() == ENDING]


def _is_local(folder: Path) -> bool:
    """Raises ModelError for a folder that may not be looked into."""
    try:
        return (folder / "config.json").is_file()
    except OSError as error:
        fix = fix_unreadable(error, "Check the path.")
        raise ModelError(f"{folder} cannot be read.", why=why_unreadable(error), fix=fix) from None


def _exists(path: Path) -> bool:
    """A path that may not be looked at is no hub id either."""
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
    hub_id = hub_id_of(name)
    if hub_id is not None and not near_names(name):
        return ModelNotFound(
            f"{name} is no folder and no hub id.",
            why="Models come from the hub, under names that read publisher/model.",
            fix=f"Did you mean {hub_id}?",
        )
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
    why = "It is no hub id either: those read publisher/model."
    return ModelNotFound(f"There is no folder {name}.", why=why, fix=fix)


def _is_a_file(name: str, local: Path) -> ModelNotFound:
    beside = (local.parent / "config.json").is_file()
    return ModelNotFound(
        f"{name} is a file.",
        why="A model is a folder with config.json, or a file that ends in .gguf.",
        fix=f"Give its folder: {local.parent}" if beside else "Give the model's folder, or a hub id.",
    )


def _download(place: _Place, weights: tuple[str, ...], settings: tuple[str, ...], progress: Progress | None) -> Path:
    """The snapshot's folder with the files of these patterns."""
    from huggingface_hub import snapshot_download

    meter = Meter(progress, place.repo_id)
    try:
        if not place.offline:
            hub = resume.Hub(place.endpoint, place.token, place.cache)
            resume.prefetch(hub, place.repo_id, place.revision, weights, UNWANTED, meter)
        path = snapshot_download(
            place.repo_id,
            revision=place.revision,
            cache_dir=place.cache,
            endpoint=place.endpoint,
            token=place.token,
            local_files_only=place.offline,
            allow_patterns=[*weights, *settings],
            ignore_patterns=list(UNWANTED),
            max_workers=4,
            tqdm_class=meter.bar_class(),
        )
    except Exception as error:
        raise _translate(error, place.repo_id, place.revision, place.offline, place.cache) from error
    return Path(path)


def _translate(error: Exception, repo_id: str, revision: str | None, offline: bool, cache: Path) -> ModelError:
    """Our error for one of huggingface_hub's; anything unknown is raised as it is. Order matters: they inherit."""
    from huggingface_hub import errors as hub

    if isinstance(error, ModelError):
        return error
    if isinstance(error, hub.HFValidationError):
        why = "Those read publisher/model, in letters, digits, dots, dashes and underscores."
        return ModelNotFound(f"{repo_id[:100]} is no hub id.", why=why, fix="Check the spelling.")
    if isinstance(error, hub.GatedRepoError):
        return ModelNotFound(
            f"{repo_id} is gated: its publisher wants to know who downloads it.",
            why="The hub refused access.",
            fix="Accept its terms on its page on the hub, then set HF_TOKEN or run `hf auth login`.",
        )
    if isinstance(error, hub.RevisionNotFoundError):
        return ModelNotFound(
            f"{repo_id} has no revision {revision or 'main'}.",
            why="It is no branch, tag or commit of that repository.",
            fix="Leave --revision out for the newest, or take one from the model's page on the hub.",
        )
    if isinstance(error, hub.RepositoryNotFoundError) or _status(error) in (401, 403):
        return ModelNotFound(
            f"There is no model {repo_id} on the hub, or it is private.",
            why="The hub does not say which.",
            fix=_nearest(repo_id, cache) or "Check the spelling; for a private one set HF_TOKEN.",
        )
    if isinstance(error, hub.IncompleteSnapshotError):
        return _not_there(f"{repo_id} is here only in part.", offline, "its download was interrupted", "")
    if isinstance(error, hub.LocalEntryNotFoundError | hub.OfflineModeIsEnabled):
        return _not_there(f"{repo_id} is not on this machine.", offline, "", _nearest(repo_id, cache))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            f"The disk is full: {repo_id} could not be downloaded.",
            why="What has come so far is kept.",
            fix="Make room, or set HF_HOME to a folder on another disk, and start again.",
        )
    if _status(error) is not None or resume.is_transport_error(error):
        return ModelError(
            f"The download of {repo_id} was interrupted.",
            why=f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else 'no answer'}.",
            fix="Start again: it goes on where it stopped.",
        )
    raise error


def _not_there(what: str, offline: bool, reason: str, near: str) -> ModelNotFound:
    network = "the network was not to be used" if offline else "the hub could not be reached"
    why = f"{reason}, and {network}." if reason else f"{network}."
    fix = "Start again without offline mode." if offline else "Check the network, then start again."
    return ModelNotFound(what, why=why[0].upper() + why[1:], fix=near or fix)


def _status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _nearest(repo_id: str, cache: Path) -> str:
    """A question naming the most similar model already downloaded, or nothing."""
    known = [path.name.removeprefix("models--").replace("--", "/", 1) for path in cache.glob("models--*--*")]
    near = difflib.get_close_matches(repo_id, [name for name in known if name != repo_id], 1, cutoff=0.7)
    return f"Did you mean {near[0]}, which is on this machine?" if near else ""
