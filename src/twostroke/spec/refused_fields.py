"""Fields of config.json that change the answer in transformers and have no implementation here: refused by name.

Knows: fields, what transformers does with them.
Must not know: the fields that are implemented.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.spec.fields import Fields
from twostroke.types.errors import UnsupportedModel


def refuse_fields(fields: Fields, architecture: str, model_types: Sequence[str], reads: Sequence[str] = ()) -> None:
    """Raises UnsupportedModel naming the field. model_types: what belongs to the architecture, the usual one first.

    reads: of the fields below, those that the architecture implements.
    """
    said = fields.text("model_type", "")
    if said and said not in model_types:
        raise UnsupportedModel(
            f"config.json: model_type {said[:40]!r} and architectures {architecture} contradict each other.",
            why="transformers goes by the first, other programs by the second, and the answers differ.",
            fix=f"Write model_type {model_types[0]!r} if the model is a {architecture}.",
        )
    if not fields.boolean("is_causal", True):
        raise UnsupportedModel(
            "config.json: is_causal is false.",
            why="Each position would see those after it; no text can be generated one token after the other.",
            fix="Use a model that was trained to generate text.",
        )
    if "per_layer_config" not in reads and fields.group("per_layer_config") is not None:
        raise UnsupportedModel(
            "config.json: per_layer_config is not implemented.",
            why="It gives single layers other sizes or settings; here all layers are the same.",
            fix="Use a model whose layers are the same.",
        )
