"""Finds where models lie: the embedded model and its draft, folders, files, hubs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from twostroke.assembly.optional import chat_template, kept_result
from twostroke.assembly.settings.engine_settings import DiskSettings, ModelSettings
from twostroke.assembly.settings.env import Machine, hub_offline
from twostroke.assembly.settings.names import meant
from twostroke.assembly.settings.resolver import Resolver
from twostroke.assembly.settings.server_settings import TalkSettings
from twostroke.assets import spark_draft_path, spark_path
from twostroke.ops.quant.formats import STORED
from twostroke.text.templates.template_files import read_sources
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.reading.user_path import user_path
from twostroke.weights.gguf.unfold import unfold_file
from twostroke.weights.hub.hub import EMBEDDED, ModelFolder, resolve_model
from twostroke.weights.packed.cache_choice import kept_folder
from twostroke.weights.vocabularies.unfold import with_tokenizer

if TYPE_CHECKING:
    from twostroke.text.templates.chat_template import ChatTemplate

Progress = Callable[[int, int, str], None]
CALIBRATED = "calibrated weights for"
"""How the reason of the setting `weights` begins when calibrated weights are used. Loading recognises them by this
text."""

SHIPPED = {EMBEDDED: spark_path, "spark-draft": spark_draft_path}


def name_of(folder: ModelFolder) -> str:
    """Returns a model's name for messages: the embedded model's name, or the last part of the folder or hub id."""
    return folder.source if "/" not in folder.source else Path(folder.source).name


def own_template(resolver: Resolver) -> Path | None:
    """Returns the file of --chat-template, which is used instead of the model's own template. Returns None without the
    option."""
    asked = resolver.asked_value(TalkSettings.chat_template)
    return None if asked is None else user_path(asked)


def texts_of(resolver: Resolver, folder: Path) -> tuple[Tokenizer, ChatTemplate | None]:
    """Returns the tokenizer and the template of conversations: the model's own template, or the one that is asked for.
    """
    own = own_template(resolver)
    template = chat_template.ChatTemplate.from_folder(folder, own) if read_sources(folder, own) else None
    return Tokenizer.from_folder(folder, own), template


def locate(
    model: str, revision: str | None = None, progress: Progress | None = None, kept: Path | None = None
) -> ModelFolder:
    """Returns the folder of a model. model: the name of a model that this package contains, a folder, a GGUF file, a
    hub id (which is downloaded), or an alias of one of these.

    kept: the cache folder. A GGUF file, or a folder without tokenizer.json, gets a folder there with the files that the
    engine reads.
    """
    name = meant(model)
    if name in SHIPPED:
        return ModelFolder(SHIPPED[name](), model, None)
    found = replace(resolve_model(name, revision=revision, offline=hub_offline(), progress=progress), source=model)
    if not found.path.is_file():
        return replace(found, path=with_tokenizer(found.path, kept))
    unfolded = unfold_file(found.path, kept)
    return replace(found, path=unfolded.folder, headers=unfolded.headers)


def calibrated(resolver: Resolver, found: ModelFolder, kept: Path | None) -> ModelFolder:
    """Returns the same model with the weights that `twostroke quantize` made for the format of `--weights`, where the
    cache folder `kept` has a record of them. With a record, the reason of the setting `weights` tells whether these
    weights are used, and why."""
    asked = resolver.asked_value(ModelSettings.weights)
    result = None if asked is None or kept is None else kept_result.kept_result(kept, found.path, asked)
    if asked is None or result is None:
        return found
    if result.folder is None:
        resolver.ask_instead(ModelSettings.weights, asked, f"--weights {asked}; rounded, because {result.why}")
        return found
    words = f"{CALIBRATED} --weights {asked}: `twostroke quantize` wrote them to {result.folder}"
    resolver.ask_instead(ModelSettings.weights, STORED, words)
    return replace(found, path=result.folder)


def compared_heads_folder(resolver: Resolver, machine: Machine) -> Path | None:
    """Returns the folder of the records that tell whether a checkpoint's head equals its embedding; None where nothing
    is kept on disk."""
    kept = kept_folder(resolver.asked_value(DiskSettings.cache), machine.cache_folder)
    return None if kept is None else kept / "heads"
