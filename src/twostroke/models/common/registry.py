"""The registry of architectures: which model file reads a config.

    @architecture("Qwen3ForCausalLM", model_type="qwen3")
    def qwen3(fields: Fields) -> tuple[CommonFacts, ProgramText]: ...

Knows: the folder of model files, and that its folders hold more of them.
Must not know: any of them by name.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from twostroke.models.common.forms import LOGITS, Form, causal_name, form_named, formed, require_form
from twostroke.ops.passes.column_orders import OrderChoice, no_orders, with_column_orders
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.program.check import check
from twostroke.program.fuse import fuse
from twostroke.program.model import CommonFacts, Model
from twostroke.program.trace import StoredChoice, Tracer, nothing_stored
from twostroke.program.values import Value
from twostroke.spec.fields import Fields
from twostroke.spec.refused_fields import refuse_fields
from twostroke.types.errors import UnsupportedModel
from twostroke.types.pooling import Task

COMMON = "common"
"""The folder of what families share; it holds no architecture."""


__all__ = [
    "Architecture",
    "CommonFacts",
    "ProgramText",
    "Reader",
    "architecture",
    "architectures",
    "read_model",
    "registered",
]

ProgramText = Callable[[Tracer], Value]
"""Traces the model and returns the logits of the rows that need them."""

Reader = Callable[[Fields], tuple[CommonFacts, ProgramText]]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model file's entry. other_types: what model_type may say beside the usual word. form: of its program.

    fields: those that most architectures must refuse, and this one implements (spec/refused_fields.py).
    """

    name: str
    model_type: str
    read: Reader
    other_types: tuple[str, ...] = ()
    form: Form = LOGITS
    fields: tuple[str, ...] = ()


_entries: dict[str, Architecture] = {}


def architecture(
    *names: str,
    model_type: str,
    other_types: tuple[str, ...] = (),
    form: Form = LOGITS,
    fields: tuple[str, ...] = (),
) -> Callable[[Reader], Reader]:
    """Register a reader under the names that `architectures` in config.json may hold; the first is the usual one.

    form: what the program makes. other_types, fields: see Architecture.
    """

    def add(read: Reader) -> Reader:
        for name in names:
            _entries[name] = Architecture(names[0], model_type, read, other_types, form, fields)
        return read

    return add


def registered(name: str) -> Architecture:
    """The entry of an architecture whose file is imported already."""
    return _entries[name]


def causal_of_type(model_type: str) -> Architecture | None:
    """The entry of models that continue text to which a model_type belongs, of the files that are imported already."""
    for entry in _entries.values():
        if model_type in (entry.model_type, *entry.other_types) and entry.form.task is Task.GENERATE:
            return entry
    return None


@cache
def architectures() -> Mapping[str, Architecture]:
    """All of them, by name."""
    _import_folder(__name__.rsplit(".", 2)[0])
    return dict(sorted(_entries.items()))


def _import_folder(package: str) -> None:
    """Each file registers its architectures when it is imported; folders hold more files."""
    folder = importlib.import_module(package)
    for info in pkgutil.iter_modules(folder.__path__):
        name = f"{package}.{info.name}"
        if not info.ispkg:
            importlib.import_module(name)
        elif info.name != COMMON:
            _import_folder(name)


def read_model(
    config: Mapping[str, Any],
    stored: StoredChoice = nothing_stored,
    orders: OrderChoice = no_orders,
    asked: Form | None = None,
    apart: bool | None = None,
) -> Model:
    """The model of a config.json. CorruptModel (impossible value) and UnsupportedModel name the field.

    stored: for the tensors of a matrix the format that keeps what the checkpoint holds. orders: which matrices are kept
    with their columns sorted. asked: what to serve it as; None for what its architecture is made for. apart: whether
    experts that plain checkpoints of the family hold in stacks are named one by one; None for what the config says.
    """
    fields = Fields(config, "config.json")
    entry, own = _entry(fields)
    form = require_form(own, asked, entry.name)
    refuse_fields(fields, entry.name, (entry.model_type, *entry.other_types), entry.fields)
    facts, text = entry.read(fields)
    trace = Tracer(stored, _has_experts_apart(fields) if apart is None else apart)
    facts, whole = formed(facts, trace.program(text(trace)), form)
    facts = replace(facts, stacks=(*facts.stacks, *trace.stacks))
    plain = with_column_orders(whole, orders)
    program = fuse(plain, PATTERNS)
    check(program)
    return Model.of(facts, entry.name, plain, program, form.task)


def _has_experts_apart(fields: Fields) -> bool:
    """Programs that write these formats make a module of each expert first."""
    own = fields.group("quantization_config")
    return own is not None and own.values.get("quant_method") in ("compressed-tensors", "gptq", "awq")


def architecture_of(fields: Fields) -> str:
    """The usual name of a config's architecture. Raises UnsupportedModel where it is not implemented."""
    return _entry(fields)[0].name


def _entry(fields: Fields) -> tuple[Architecture, Form]:
    """The entry of a config, and what its checkpoint is made for."""
    known = architectures()
    named = fields.texts("architectures")
    for name in named:
        if name in known:
            return known[name], known[name].form
        if causal_name(name) in known:
            return known[causal_name(name)], form_named(name, fields)
    model_type = fields.text("model_type", "")
    if not named:
        for entry in known.values():
            if model_type in (entry.model_type, *entry.other_types) and entry.form.task is not Task.RERANK:
                return entry, entry.form
    word = (", ".join(named) or model_type)[:80]
    near = difflib.get_close_matches(named[0] if named else model_type, known, n=3, cutoff=0.5)
    raise UnsupportedModel(
        f"The architecture {word or 'of this model'} is not implemented.",
        why=f"config.json: architectures must name one of the {len(known)} that are listed in docs/models.md.",
        fix=f"The nearest are {', '.join(near)}." if near else "Use a model of one of these families.",
    )
