"""Finds the files of a model's image encoder: in the model's folder, or in an mmproj file next to a GGUF file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from twostroke.assembly.settings.engine_settings import ImageSettings
from twostroke.assembly.settings.resolver import Resolver
from twostroke.images.families.registry import read_settings
from twostroke.ops.program.model import Model
from twostroke.text.tokenizer_file import tokenizer_members
from twostroke.types.errors import CorruptModel, ModelNotFound
from twostroke.types.reading.user_path import user_path
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.file_names import ENDING, projectors_for
from twostroke.weights.gguf.projector import open_projector, read_projector, refuse_other_model, token_of_mark
from twostroke.weights.gguf.unfold import NAME_FILE
from twostroke.weights.json_file import read_object

SOURCES = ("rope_parameters", "rope_scaling", "rms_norm_eps", "pad_token_id")
"""Fields of the language model's config that the readers of encoders use."""


class SightFiles(Struct, frozen=True):
    """The files of an image encoder. config: the fields of its config.json. settings: the fields of its processor.
    open: opens the encoder's tensors.

    apart: whether the encoder's tensors have a file of their own. name: the name of that file, else of the model's
    folder, for messages.
    """

    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    open: Callable[[], Checkpoint]
    apart: bool
    name: str


def sight_files(resolver: Resolver, spec: Model, folder: Path, config: Mapping[str, Any]) -> SightFiles | None:
    """Returns the files of the model's image encoder, from --mmproj or the model's folder; None where there are none.
    Raises ModelError."""
    asked = resolver.asked_value(ImageSettings.mmproj)
    if asked is None and not (folder / NAME_FILE).is_file():
        return SightFiles(config, read_settings(folder), lambda: Checkpoint.open(folder), False, str(folder))
    path = user_path(asked) if asked is not None else _next_to(folder)
    if path is None:
        return None
    if not path.is_file():
        raise ModelNotFound(f"There is no file {path}.", fix="Give the mmproj file of the model.")
    projector = read_projector(path)
    refuse_other_model(projector, spec.architecture, spec.hidden_size, str(resolver.resolved().model.model))
    text = read_object(folder / "config.json")
    token = token_of_mark(tokenizer_members(folder).get("added_tokens"), projector.kind.mark)
    if token is None:
        raise CorruptModel(
            f"The model has no token {projector.kind.mark}, which {path.name} needs.",
            why="It stands in prompts where rows of an image go.",
            fix="Give the mmproj file that was published with the model.",
        )
    made = {
        **projector.config,
        "text_config": {**{name: text[name] for name in SOURCES if name in text}, **projector.kind.more(text)},
        **{"image_token_id": token, "image_token_index": token},
    }
    return SightFiles(made, projector.settings, lambda: open_projector(projector), True, path.name)


def _next_to(folder: Path) -> Path | None:
    """Returns the mmproj file next to the GGUF file that was unfolded into this folder. Raises ModelNotFound where
    several files could be meant."""
    model = Path(str(read_object(folder / NAME_FILE).get("file")))
    try:
        names = [name for name in os.listdir(model.parent) if name.lower().endswith(ENDING)]
    except OSError:
        return None
    found = projectors_for(model.name, names)
    if len(found) > 1:
        raise ModelNotFound(
            f"There are {len(found)} encoders of images next to {model.name}.",
            why=f"They are {', '.join(sorted(found)[:20])}.",
            fix="Name one with --mmproj FILE.",
        )
    return model.parent / found[0] if found else None
