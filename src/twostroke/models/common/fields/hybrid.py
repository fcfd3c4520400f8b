"""The fields that define, for each layer of a hybrid, whether it keeps a state or K and V."""

from __future__ import annotations

from twostroke.types.spec.fields import Fields

ATTENTION = ("full_attention", "attention")
STATES = ("linear_attention", "mamba", "conv")


def attention_layers(
    fields: Fields, num_layers: int, usual: tuple[bool, ...], name: str = "layer_types"
) -> tuple[bool, ...]:
    """Returns for each layer whether it has attention. name: the field that lists the layers; where it is absent the
    result is `usual`."""
    types = fields.texts(name)
    if not types:
        return usual
    if len(types) != num_layers or any(each not in ATTENTION + STATES for each in types):
        known = ", ".join(ATTENTION + STATES)
        raise fields.wrong(name, f"It must say {num_layers} times one of {known}.")
    return tuple(each in ATTENTION for each in types)
