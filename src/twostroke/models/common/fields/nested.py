"""The language model inside a model for images or sounds too: its config, and the names of its tensors.

Knows: which outer fields count for the language model, how checkpoints name what belongs to it and what does not.
Must not know: any one architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.models.common.fields.fields import with_silent
from twostroke.models.common.registry import Architecture, CommonFacts, ProgramText, causal_of_type, registered
from twostroke.spec.fields import Fields
from twostroke.spec.refused_fields import refuse_fields
from twostroke.types.errors import CorruptModel, UnsupportedModel

NOTHING: Mapping[str, object] = {}
OUTER = (
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "quantization_config",
    "tie_word_embeddings",
    "torch_dtype",
)
"""Outer fields that count where the inner group is silent."""

PREFIXES = (
    ("language_model.model.blocks.", "model.layers."),  # Kimi K2.5 as transformers 5.23 writes it
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("model.text_model.", "model."),  # Idefics3 and SmolVLM
    ("language_model.lm_head.", "lm_head."),
)
"""How names of the language model's tensors begin, each with what they begin with in a checkpoint of text alone."""

NOT_TEXT = (
    "vision_tower.",
    "model.vision_tower.",
    "model.vision_model.",
    "model.connector.",
    "vision_model.",
    "visual.",
    "image_newline",
    "model.image_newline",
    "model.visual.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "mm_projector.",
    "model.mm_projector.",
    "model.vision_embedder.",
    "model.embed_vision.",
    "model.audio_tower.",
    "model.embed_audio.",
)
"""Beginnings of the names of tensors that only images and sounds need."""


def language_model(
    fields: Fields, architecture: str, silent: Mapping[str, object] = NOTHING
) -> tuple[CommonFacts, ProgramText]:
    """The model of `text_config`, read as this architecture. Raises CorruptModel where that group is absent.

    silent: what transformers assumes for the language model inside where its config is silent.
    """
    return _model(registered(architecture), with_silent(_inner(fields, "text_config"), silent))


def language_model_or_flat(
    fields: Fields, architecture: str, silent: Mapping[str, object] = NOTHING
) -> tuple[CommonFacts, ProgramText]:
    """See language_model. The family's older files have no group text_config: there all fields are the language
    model's."""
    if fields.has("text_config"):
        return language_model(fields, architecture, silent)
    flat = {name: value for name, value in fields.values.items() if name not in ("model_type", "vision_config")}
    return _model(registered(architecture), with_silent(Fields(flat, fields.place), silent))


def language_model_by_type(fields: Fields) -> tuple[CommonFacts, ProgramText]:
    """The model of `text_config`, read as the architecture that its model_type belongs to."""
    text = _inner(fields, "text_config")
    word = text.text("model_type", "llama")  # what transformers assumes
    entry = causal_of_type(word)
    if entry is None:
        raise UnsupportedModel(
            f"{text.place}: the language model {word[:40]!r} is not implemented.",
            why="model_type says which architecture the language model inside has.",
            fix="Use a model whose language model has an architecture that is listed in docs/models.md.",
        )
    return _model(entry, text)


def _model(entry: Architecture, text: Fields) -> tuple[CommonFacts, ProgramText]:
    refuse_fields(text, entry.name, (entry.model_type, *entry.other_types), entry.fields)
    facts, program = entry.read(_turning_once(text))
    return replace(facts, ignored=(*facts.ignored, *NOT_TEXT), stored_prefixes=PREFIXES), program


def _turning_once(text: Fields) -> Fields:
    """Rotations by time, height and width are those by position where there is text alone: all three are equal."""
    values = dict(text.values)
    for name in ("rope_scaling", "rope_parameters"):
        group = text.group(name)
        if group is not None and "mrope" in (group.values.get("type"), group.values.get("rope_type")):
            values[name] = {**group.values, "type": "default", "rope_type": "default"}
    return Fields(values, text.place)


def text_fields(fields: Fields) -> Fields:
    """The fields of the language model: those of `text_config`, or all where there is no such group."""
    return _inner(fields, "text_config") if fields.has("text_config") else fields


def _inner(fields: Fields, name: str) -> Fields:
    """The group of the language model, with the outer fields that count."""
    group = fields.group(name)
    if group is None:
        raise CorruptModel(
            f"{fields.place}: {name} is missing.",
            why="It holds the sizes of the language model.",
            fix="Download config.json again.",
        )
    outer = {key: fields.values[key] for key in OUTER if fields.values.get(key) is not None}
    inner = {key: value for key, value in group.values.items() if value is not None or key not in outer}
    return Fields({**outer, **inner}, group.place)
