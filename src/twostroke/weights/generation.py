"""Reads generation_config.json: how the model's publisher wants tokens chosen, and which tokens end an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from twostroke.types.spec.fields import Fields
from twostroke.weights.json_file import read_object

FILE_NAME = "generation_config.json"


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """The defaults of a model's publisher. sampling: the parameters that generation_config.json sets, by the names of
    SamplingParams. eos_token_ids: the end tokens; may be empty."""

    eos_token_ids: tuple[int, ...] = ()
    sampling: Mapping[str, float | int] = field(default_factory=lambda: MappingProxyType({}))


def read_generation_defaults(folder: Path) -> GenerationDefaults:
    """Reads generation_config.json of a model's folder; returns empty defaults where there is no such file. Raises
    CorruptModel naming the field.

    With do_sample false the publisher wants greedy decoding: temperature, top_k, top_p and min_p are then ignored.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return GenerationDefaults()
    fields = Fields(read_object(path), FILE_NAME)
    penalty = fields.optional_number("repetition_penalty", 1e-3, 10.0)
    sampling: dict[str, float | int | None] = {"repetition_penalty": penalty}
    if fields.boolean("do_sample", True):
        top_k = fields.optional_integer("top_k", -1, 1 << 24)
        sampling |= {
            "temperature": fields.optional_number("temperature", 0.0, 2.0),
            "top_k": None if top_k is None else max(0, top_k),
            "top_p": fields.optional_number("top_p", 0.0, 1.0),
            "min_p": fields.optional_number("min_p", 0.0, 1.0),
        }
    known = {name: value for name, value in sampling.items() if value is not None}
    eos_token_ids = tuple(i for i in fields.integers("eos_token_id") if i >= 0)
    return GenerationDefaults(eos_token_ids, MappingProxyType(known))
