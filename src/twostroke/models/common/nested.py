"""The config of a language model inside that of a model that also sees or hears.

Knows: which outer fields count for the language model.
Must not know: any one architecture.
"""

from __future__ import annotations

from twostroke.spec.fields import Fields
from twostroke.types.errors import CorruptModel

OUTER = (
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "quantization_config",
    "tie_word_embeddings",
    "torch_dtype",
)
"""Outer fields that count where the inner group is silent."""


def nested_text(fields: Fields, name: str) -> Fields:
    """The group of the language model, with the outer fields that count. Raises CorruptModel where it is absent."""
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
