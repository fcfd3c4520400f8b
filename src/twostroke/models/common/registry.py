"""The registry of architectures: which model file reads a config.

    @architecture("Qwen3ForCausalLM", model_type="qwen3")
    def qwen3(fields: Fields) -> tuple[CommonFacts, ProgramText]: ...

Knows: the folder of model files.
Must not know: any of them by name.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from twostroke.ops.patterns import PATTERNS
from twostroke.program.check import check
from twostroke.program.fuse import fuse
from twostroke.program.model import Model
from twostroke.program.trace import Tracer
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.refused_fields import refuse_fields
from twostroke.types.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class CommonFacts:
    """What a model file reads from the config beside its program. See program/model.py for the fields."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    max_positions: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    dtype: str
    ignored: tuple[str, ...] = ()
    optional_prefix: str = ""


ProgramText = Callable[[Tracer], Value]
"""Traces the model and returns the logits of the rows that need them."""

Reader = Callable[[Fields], tuple[CommonFacts, ProgramText]]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model file's entry."""

    name: str
    model_type: str
    read: Reader


_entries: dict[str, Architecture] = {}


def architecture(*names: str, model_type: str) -> Callable[[Reader], Reader]:
    """Register a reader under the names that `architectures` in config.json may hold."""

    def add(read: Reader) -> Reader:
        for name in names:
            _entries[name] = Architecture(name, model_type, read)
        return read

    return add


@cache
def architectures() -> Mapping[str, Architecture]:
    """All of them, by name."""
    package = __name__.rsplit(".", 2)[0]
    folder = importlib.import_module(package)
    for info in pkgutil.iter_modules(folder.__path__):
        if not info.ispkg:
            importlib.import_module(f"{package}.{info.name}")
    return dict(sorted(_entries.items()))


def read_model(config: Mapping[str, Any]) -> Model:
    """The model of a config.json. CorruptModel (impossible value) and UnsupportedModel name the field."""
    fields = Fields(config, "config.json")
    entry = _entry(fields)
    refuse_fields(fields, entry.name, entry.model_type)
    facts, text = entry.read(fields)
    trace = Tracer()
    plain = trace.program(text(trace))
    program = fuse(plain, PATTERNS)
    check(program)
    return Model(
        entry.name,
        facts.vocab_size,
        facts.hidden_size,
        facts.num_layers,
        facts.max_positions,
        facts.bos_token_id,
        facts.eos_token_ids,
        facts.dtype,
        plain,
        program,
        facts.ignored,
        facts.optional_prefix,
    )


def _entry(fields: Fields) -> Architecture:
    known = architectures()
    named = fields.texts("architectures")
    for name in named:
        if name in known:
            return known[name]
    model_type = fields.text("model_type", "")
    if not named:
        for entry in known.values():
            if entry.model_type == model_type:
                return entry
    word = (", ".join(named) or model_type)[:80]
    near = difflib.get_close_matches(named[0] if named else model_type, known, n=3, cutoff=0.5)
    raise UnsupportedModel(
        f"The architecture {word or 'of this model'} is not implemented.",
        why="config.json: architectures must name one of " + ", ".join(known) + ".",
        fix=f"The nearest are {', '.join(near)}." if near else "Use a model of one of these families.",
    )
