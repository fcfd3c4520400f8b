"""Fields of config.json under all the names that they have, and the form of a function that writes a family's keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twostroke.weights.gguf.families.family import Config, Shape

Names = Mapping[str, Shape]
"""Stored tensors and their shapes."""
Own = Callable[[Config, Names], dict[str, Any]]


def head_dim(config: Config) -> int:
    """Elements of a head; 0 where there are none."""
    heads = config.get("num_attention_heads") or config.get("n_head") or config.get("n_heads") or 0
    width = config.get("hidden_size") or config.get("n_embd") or config.get("d_model") or 0
    return int(config.get("head_dim") or (width // heads if heads else 0))


def rope_groups(config: Config) -> Mapping[str, Any]:
    """The fields of rotations, or those of each type of layer."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found if isinstance(found, Mapping) else {}


def rope_of(config: Config) -> Mapping[str, Any]:
    """The fields of rotations; of several groups those of full attention."""
    found = rope_groups(config)
    own = found.get("full_attention", found)
    return own if isinstance(own, Mapping) else {}
