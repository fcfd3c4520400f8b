"""Reads fields of config.json that have different names in different model families. `Own` is the type of the functions
that return the GGUF keys of one family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twostroke.weights.gguf.families.family import Config, Shape

Names = Mapping[str, Shape]
"""Names of stored tensors with their shapes."""
Own = Callable[[Config, Names], dict[str, Any]]


def head_dim(config: Config) -> int:
    """Returns the elements of a head; 0 where there are no heads."""
    heads = config.get("num_attention_heads") or config.get("n_head") or config.get("n_heads") or 0
    width = config.get("hidden_size") or config.get("n_embd") or config.get("d_model") or 0
    return int(config.get("head_dim") or (width // heads if heads else 0))


def rope_groups(config: Config) -> Mapping[str, Any]:
    """Returns the fields of rotations. Some models have a group of such fields for each type of layer."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found if isinstance(found, Mapping) else {}


def rope_of(config: Config) -> Mapping[str, Any]:
    """Returns the fields of rotations. Where there are several groups, these are the fields of full attention."""
    found = rope_groups(config)
    own = found.get("full_attention", found)
    return own if isinstance(own, Mapping) else {}
