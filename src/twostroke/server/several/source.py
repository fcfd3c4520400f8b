"""The settings of one model of a server with several models, from the command line or a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from twostroke.assembly.settings.options import ADAPTER_OPTIONS, ENGINE_OPTIONS
from twostroke.types.errors import ConfigError
from twostroke.weights.gguf.file_names import ENDING

OF_PROCESS = frozenset(option.name for option in ENGINE_OPTIONS + ADAPTER_OPTIONS)
"""The options that a model's process is started with."""
OF_MODEL = (*sorted(OF_PROCESS), "chat_template", "tool_format", "reasoning_format")
"""The options that concern one model of several."""


class ModelSource(Struct, frozen=True):
    """The settings of one model. reference: the argument that `serve` takes. names: the names that requests may use;
    messages use the first. shown: the names that lists show. options: the model's own options, whose names are in
    OF_MODEL. defaults: sampling values for requests that set none. keep_s: how many seconds the model stays loaded
    after its last request. pinned: True when it is loaded at the start and never unloaded. at_start: True when it is
    loaded at the start."""

    reference: str
    names: tuple[str, ...]
    options: Mapping[str, Any] = {}
    defaults: Mapping[str, Any] = {}
    shown: tuple[str, ...] = ()
    keep_s: float = math.inf
    pinned: bool = False
    at_start: bool = False

    def __post_init__(self) -> None:
        if not self.shown:
            msgspec.structs.force_setattr(self, "shown", self.names[:1])

    @property
    def name(self) -> str:
        """The name for lists and messages."""
        return self.names[0]


def usual_names(reference: str) -> tuple[str, ...]:
    """Returns three names: the last part of a path or hub id, which `serve` uses as the name; this part without a
    file's ending; the whole reference."""
    last = Path(reference).name if "/" in reference else reference
    return tuple(dict.fromkeys((last, last.removesuffix(ENDING), reference)))


def with_own_names(sources: Iterable[ModelSource]) -> list[ModelSource]:
    """Returns the sources, each with the names that no earlier source has. Raises ConfigError when a source has no name
    left."""
    taken: dict[str, ModelSource] = {}
    made = []
    for source in sources:
        own = tuple(name for name in source.names if name.lower() not in taken)
        if not own:
            other = taken[source.names[0].lower()]
            raise ConfigError(
                f"Two models have the name {source.name!r}: {other.reference} and {source.reference}.",
                why="A request names one model.",
                fix="Name each model once, or give one of them another name in a file for --models.",
            )
        made.append(ModelSource(**{**_fields(source), "names": own}))
        taken |= {name.lower(): source for name in own}
    return made


def _fields(source: ModelSource) -> dict[str, Any]:
    return {name: getattr(source, name) for name in source.__struct_fields__}
