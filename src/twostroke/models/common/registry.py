"""The registry of architectures: which model file reads a config.

    @architecture("Qwen3ForCausalLM", model_type="qwen3")
    def qwen3(fields: Fields) -> tuple[CommonFacts, ProgramText]: ...

When a model is loaded, only the file that its config needs is imported; homes.json has the name of that file. All files
are imported only for a name that homes.json does not have, and for the list of all architectures.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from msgspec import Struct

from twostroke.models.common.forms import LOGITS, Form, causal_name, form_named, formed, require_form
from twostroke.models.common.homes import CAUSAL_OF_TYPE, HOMES
from twostroke.ops.passes.best_losses import with_best_losses
from twostroke.ops.passes.column_orders import OrderChoice, no_orders, with_column_orders
from twostroke.ops.passes.first_rows import with_first_rows
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.passes.rounded_rows import with_rounded_rows
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import CommonFacts, Model
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import StoredChoice, Tracer, nothing_stored
from twostroke.ops.program.values import Value
from twostroke.types.errors import UnsupportedModel
from twostroke.types.pooling import Task
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.refused_fields import refuse_fields, refuse_unread

COMMON = "common"
"""The folder of code that families share; it holds no architecture."""

INNER = {"text_config", "thinker_config"}
"""Groups of config.json that may hold the config of the language model."""

_MODELS = __name__.rsplit(".", 2)[0]
"""The package of model files."""


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
"""A model file's function that traces the model: it records the model's calls with a Tracer. It returns the logits of
those rows of a step that need logits."""

Reader = Callable[[Fields], tuple[CommonFacts, ProgramText]]


class Architecture(Struct, frozen=True):
    """A model file's entry. other_types: values that model_type may have in addition to the usual one. form: what the
    rows of the file's program are, such as logits or embeddings."""

    name: str
    model_type: str
    read: Reader
    other_types: tuple[str, ...] = ()
    form: Form = LOGITS


_entries: dict[str, Architecture] = {}


def architecture(
    *names: str,
    model_type: str,
    other_types: tuple[str, ...] = (),
    form: Form = LOGITS,
) -> Callable[[Reader], Reader]:
    """Registers a reader under the names that `architectures` in config.json may hold; the first is the usual one.

    form: what the rows of the program's result are, such as logits. other_types: values that the config's model_type
    may have in place of `model_type`.
    """

    def add(read: Reader) -> Reader:
        for name in names:
            _entries[name] = Architecture(names[0], model_type, read, other_types, form)
        return read

    return add


def registered(name: str) -> Architecture:
    """Returns the entry of an architecture. Raises KeyError for a name that no model file registers."""
    found = _find(name)
    return architectures()[name] if found is None else found


def causal_of_type(model_type: str) -> Architecture | None:
    """Returns the entry that a model_type belongs to, among architectures that continue text. Returns None where there
    is none."""
    if model_type in CAUSAL_OF_TYPE:
        return registered(CAUSAL_OF_TYPE[model_type])
    return next((entry for entry in architectures().values() if is_causal_of_type(entry, model_type)), None)


def is_causal_of_type(entry: Architecture, model_type: str) -> bool:
    """True where the entry's models continue text and may have this model_type."""
    return model_type in (entry.model_type, *entry.other_types) and entry.form.task is Task.GENERATE


def _find(name: str) -> Architecture | None:
    """Imports the model file that registers a name, and returns its entry. Returns None for a name that no imported
    file registers and homes.json does not have."""
    if name not in _entries and name in HOMES:
        importlib.import_module(f"{_MODELS}.{HOMES[name]}")
    return _entries.get(name)


@cache
def architectures() -> Mapping[str, Architecture]:
    """Returns the entries of all architectures, by name."""
    _import_folder(_MODELS)
    return dict(sorted(_entries.items()))


def _import_folder(package: str) -> None:
    """Imports all model files of a folder and of its subfolders. Each file registers its architectures when it is
    imported."""
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
    """Reads the model of a config.json. Raises CorruptModel (impossible value) or UnsupportedModel, which name the
    field.

    stored: chooses for a matrix the weight format that keeps the numbers of its tensors unchanged. orders: for which
    matrices the columns are sorted by quantization group when they are packed (act-order). asked: whether the model is
    served for logits, embeddings or scores; None for what its architecture is made for. apart: whether the checkpoint
    has a tensor for each expert, in families that usually stack all experts into one tensor; None where the config
    decides it.
    """
    fields = Fields(config, "config.json")
    entry, own = _entry(fields)
    form = require_form(own, asked, entry.name)
    refuse_fields(fields, entry.name, (entry.model_type, *entry.other_types))
    facts, text = entry.read(fields)
    if not fields.read & INNER & fields.values.keys():  # else the language model's fields are checked there
        refuse_unread(fields, entry.name)
    trace = Tracer(stored, _has_experts_apart(fields) if apart is None else apart)
    facts, whole = formed(facts, trace.program(text(trace)), form)
    facts = replace(facts, stacks=(*facts.stacks, *trace.stacks))
    plain = with_best_losses(with_first_rows(with_column_orders(_rounded(fields, whole), orders)))
    program = fuse(plain, PATTERNS)
    check(program)
    return Model.of(facts, entry.name, plain, program, form.task)


def _rounded(fields: Fields, program: Program) -> Program:
    """Returns the program. For a checkpoint of BitNet, the inputs of the products in its layers are rounded, as
    BitNet's training did."""
    own = fields.group("quantization_config")
    if own is None or own.values.get("quant_method") != "bitnet":
        return program
    return with_rounded_rows(program, lambda weight: all(part.name.endswith("_proj.weight") for part in weight.parts))


def _has_experts_apart(fields: Fields) -> bool:
    """True where the checkpoint has a tensor for each expert. In checkpoints of compressed-tensors, GPTQ and AWQ this
    is so, because the tools that write them split stacked experts first."""
    own = fields.group("quantization_config")
    return own is not None and own.values.get("quant_method") in ("compressed-tensors", "gptq", "awq")


def architecture_of(fields: Fields) -> str:
    """Returns the usual name of a config's architecture. Raises UnsupportedModel where the architecture is not
    implemented."""
    return _entry(fields)[0].name


def _entry(fields: Fields) -> tuple[Architecture, Form]:
    """Returns the registry's entry for a config, and the form (logits, embeddings or scores) that its architecture asks
    for."""
    named = fields.texts("architectures")
    listed = _entry_named(named, fields)
    if listed is not None:
        return listed
    known = architectures()
    new = _entry_named(named, fields)
    if new is not None:
        return new
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


def _entry_named(names: Sequence[str], fields: Fields) -> tuple[Architecture, Form] | None:
    """Returns the entry of the first name that has one, and the form (logits, embeddings or scores) that the name asks
    for."""
    for name in names:
        own = _find(name)
        if own is not None:
            return own, own.form
        causal = _find(causal_name(name))
        if causal is not None:
            return causal, form_named(name, fields)
    return None
