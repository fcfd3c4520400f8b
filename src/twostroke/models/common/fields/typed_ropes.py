"""Reads the rotations (RoPE) of families whose rope_parameters has an entry for each type of layer. An entry of null
means no rotation."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.types.spec.fields import Fields
from twostroke.types.spec.rope import RopeSpec, ropes_by_layer_type

TYPES = ("full_attention", "sliding_attention")
"""The types of layers without a window and with one."""


def ropes_or_none(
    fields: Fields, windows: Sequence[int], head_dim: int, max_positions: int
) -> tuple[RopeSpec | None, ...]:
    """Returns the rotation of each layer. rope_parameters has a group for each type of layer in the model, or null for
    no rotation. Members next to the groups are not used, as in transformers."""
    kinds = [TYPES[bool(window)] for window in windows]
    groups = fields.group("rope_parameters") or Fields({}, fields.place)
    missing = [kind for kind in dict.fromkeys(kinds) if kind not in groups.values]
    if missing:
        raise fields.wrong("rope_parameters", f"It must have {missing[0]}: a group, or null for no rotation.")
    said = {kind: groups.values[kind] for kind in TYPES if groups.value(kind) is not None}
    thetas = dict.fromkeys(said, ("rope_theta", 10_000.0))
    own = fields.changed({"rope_parameters": said})
    ropes = ropes_by_layer_type(own, head_dim, max_positions, thetas, TYPES[0])
    return tuple(ropes.get(kind) for kind in kinds)
