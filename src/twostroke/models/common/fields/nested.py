"""The language model inside a model that also takes images or sounds: its config, and the names of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twostroke.models.common.fields.fields import with_silent
from twostroke.models.common.registry import Architecture, CommonFacts, ProgramText, causal_of_type, registered
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.refused_fields import refuse_fields, refuse_unread

TIED = "tie_word_embeddings"
HEAD_ALONE = "head_alone_is_untied"
"""The name of a field that this project adds to a config. It means that the config ties the head to the embedding, but
the checkpoint has a head of its own."""
NOTHING: Mapping[str, object] = {}
OUTER = (
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "quantization_config",
    TIED,
    "torch_dtype",
)
"""These fields are also read from outside the inner group, where the inner group does not have them."""

PREFIXES = (
    ("language_model.model.blocks.", "model.layers."),  # Kimi K2.5 as transformers 5.23 writes it
    ("language_model.model.encoder.layers.", "model.layers."),  # Qianfan-OCR as the same version writes it
    ("model.language_model.lm_head.", "lm_head."),
    ("thinker.model.language_model.", "model."),  # the part of Qwen Omni that writes text
    ("thinker.", ""),
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("model.text_model.", "model."),  # Idefics3 and SmolVLM
    ("language_model.lm_head.", "lm_head."),
    ("text_model.model.", "model."),  # Emu3
    ("text_model.lm_head.", "lm_head."),
)
"""The beginnings of the language model's tensor names, each with the beginning that a checkpoint of text alone has."""

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
    "embed_audio.",
    "sound_encoder.",
    "sound_projection.",
    "vision_final_layernorm.",
    "model.layerwise_projectors.",
    "model.spatial_projectors.",
    "audio_tower.",
    "audio_encoder.",
    "encoder.",
    "model.encoder.",
    "projector.",
    "vision_embed_tokens.",
    "model.vision_embed_tokens.",
    "vision_encoder.",
    "model.vision_encoder.",
    "vision_projection.",
    "model.vision_projection.",
    "model.visual_embeddings_table.",
    "mlp1.",
    "aligner.",
    "model.aligner.",
    "model.high_res_vision_alpha",
    "model.high_res_vision_model.",
    "model.high_res_vision_neck.",
    "model.high_res_vision_proj.",
    "model.generation_aligner.",
    "model.generation_embeddings.",
    "model.generation_head.",
    "model.merger.",
    "model.vision_adapter.",
    "model.vision_projector.",
    "model.vqmodel.",
    "vqmodel.",
    "vit.",
    "model.vit.",
    "image_tower.",
    "model.image_tower.",
    "video_tower.",
    "model.video_tower.",
    "mlp_AR.",
    "model.projector.",
    "talker.",
    "token2wav.",
    "code2wav.",
)
"""Beginnings of the names of tensors that only images and sounds need."""


def _sizes(vocab: int, hidden: int, inner: int, layers: int, heads: int) -> Mapping[str, object]:
    return {
        **{"vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner},
        **{"num_hidden_layers": layers, "num_attention_heads": heads},
    }


SILENT_SIZES: Mapping[str, Mapping[str, object]] = {
    "llama": _sizes(32_000, 4096, 11_008, 32, 32),
    "mistral": _sizes(32_000, 4096, 14_336, 32, 32),
    "qwen2": _sizes(151_936, 4096, 22_016, 32, 32),
}
"""For each model_type of a language model inside another one, the defaults of transformers for fields that its group of
the config does not have. Published configs leave out even the sizes."""


def language_model(
    fields: Fields, architecture: str, silent: Mapping[str, object] = NOTHING
) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of the group `text_config` as this architecture. Raises CorruptModel where that group is
    absent.

    silent: the defaults of transformers for fields that the inner language model's config does not have.
    """
    return text_model(fields, registered(architecture), silent)


def text_model(
    fields: Fields, entry: Architecture, silent: Mapping[str, object] = NOTHING
) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of the config's group `text_config` with the reader of `entry`. Used for language models
    that appear only inside such checkpoints, and therefore are not in the registry. silent: defaults for absent
    fields."""
    return _model(entry, with_silent(_inner(fields, "text_config"), silent))


def language_model_or_flat(
    fields: Fields, architecture: str, silent: Mapping[str, object] = NOTHING
) -> tuple[CommonFacts, ProgramText]:
    """Reads a language model as language_model does. Older files of the family have no group text_config: in these, all
    fields belong to the language model."""
    return text_model_or_flat(fields, registered(architecture), silent)


def text_model_or_flat(
    fields: Fields, entry: Architecture, silent: Mapping[str, object] = NOTHING
) -> tuple[CommonFacts, ProgramText]:
    """Reads a language model as text_model does, with the reader `entry`. In a file without the group text_config, all
    fields belong to the language model."""
    if fields.has("text_config"):
        return text_model(fields, entry, silent)
    flat = {name: value for name, value in fields.values.items() if name not in ("model_type", "vision_config")}
    return _model(entry, with_silent(fields.only(flat), silent))


def language_model_of_thinker(
    fields: Fields, architecture: str, silent: Mapping[str, object] = NOTHING
) -> tuple[CommonFacts, ProgramText]:
    """Reads the language model of a model that also speaks, whose config has it in the group `thinker_config`. The
    group's fields for speech are not used. silent: defaults for absent fields."""
    inner = _inner(fields, "thinker_config") if fields.has("thinker_config") else fields
    return language_model(inner, architecture, silent)


def language_model_by_type(fields: Fields, usual: str = "llama") -> tuple[CommonFacts, ProgramText]:
    """Reads the model of `text_config` as the architecture of its model_type.

    usual: the model_type where `text_config` does not have the field.
    """
    text = _inner(fields, "text_config")
    word = text.text("model_type", usual)
    text = with_silent(text, SILENT_SIZES.get(word, NOTHING))
    entry = causal_of_type(word)
    if entry is None:
        raise UnsupportedModel(
            f"{text.place}: the language model {word[:40]!r} is not implemented.",
            why="model_type says which architecture the language model inside has.",
            fix="Use a model whose language model has an architecture that is listed in docs/models.md.",
        )
    return _model(entry, text)


def _model(entry: Architecture, text: Fields) -> tuple[CommonFacts, ProgramText]:
    refuse_fields(text, entry.name, (entry.model_type, *entry.other_types))
    facts, program = entry.read(_turning_once(text))
    refuse_unread(text, entry.name)
    return replace(facts, ignored=(*facts.ignored, *NOT_TEXT), stored_prefixes=PREFIXES), program


TURNS = {"mrope": "default", "xdrope": "dynamic"}
"""The kinds of rotations by several axes (mrope), each with the plain kind that gives the same result for text."""


def _turning_once(text: Fields) -> Fields:
    """Replaces a rotation by time, height and width (mrope) with a plain one. For text all three positions are equal,
    so the results are the same."""
    values = dict(text.values)
    for name in ("rope_scaling", "rope_parameters"):
        group = text.group(name)
        if group is None:
            continue
        turned = TURNS.get(str(group.value("rope_type") or group.value("type")))
        if turned:
            values[name] = {**group.values, "type": turned, "rope_type": turned}
    return text.only(values)


def text_fields(fields: Fields) -> Fields:
    """Returns the fields of the language model: those of `text_config`, or all fields where there is no such group."""
    return _inner(fields, "text_config") if fields.has("text_config") else fields


def _inner(fields: Fields, name: str) -> Fields:
    """Returns the fields of the group `name` of config.json, which describes the language model. Fields such as dtype
    (OUTER) are taken from the top level where the group does not have them. Raises CorruptModel where there is no such
    group."""
    group = fields.group(name)
    if group is None:
        raise CorruptModel(
            f"{fields.place}: {name} is missing.",
            why="It holds the sizes of the language model.",
            fix="Download config.json again.",
        )
    outer = {key: fields.values[key] for key in OUTER if fields.value(key) is not None}
    inner = {key: value for key, value in group.values.items() if value is not None or key not in outer}
    if outer.get(TIED) is True:  # transformers 5 uses the outer field, older files the inner one
        inner[TIED] = True
    return group.only({**outer, **inner})


def with_own_head(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config with tie_word_embeddings false, also in text_config and thinker_config, because the checkpoint
    has an output matrix of its own. Tensors other than this matrix that the field ties stay tied."""
    groups = {
        name: with_own_head(group)
        for name in ("text_config", "thinker_config")
        if isinstance(group := config.get(name), dict)
    }
    return {**config, **groups, TIED: False, HEAD_ALONE: True}
