"""Scales of K and V that checkpoints have for a cache in FP8 (`kv_cache_scheme`; `k_scale`, `v_scale`).

K or V of a layer is divided by its scale before it is rounded to 8 bits of floating point, and multiplied by it
afterwards. So the scale decides how finely values are rounded, and does not change what the model computes. Twostroke's
cache formats have their own scale for each position and head, or no scale, so it ignores a checkpoint's scale. It only
refuses a scale that is not above 0: with such a scale, the engine for which it was written would answer nonsense.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.weights.quantized.parts import FLOATS, RawTensor, StoredTensors

KV_SCALE = re.compile(r".*\.([kv]_scale|kv_scale|[kv]_proj\.output_scale)")
MOST_NUMBERS = 1 << 16
"""The most numbers of a scale, more than the channels of K of any layer: a larger tensor is not a scale, and is not
read."""
FIX = "Use a checkpoint without kv_cache_scheme, or one whose kv_cache_scheme is symmetric."


def check_kv_scales(tensors: Mapping[str, RawTensor]) -> None:
    """Raises CorruptModel for a scale that is not a positive number of a float type."""
    for name in filter(KV_SCALE.fullmatch, tensors):
        part = StoredTensors(tensors).part(name, FLOATS)
        if math.prod(part.shape) > MOST_NUMBERS:
            raise part.wrong(f"It has the shape {list(part.shape)}: a scale of K or V has few numbers.")
        if not (part.floats() > 0).all():
            raise part.wrong("A scale of K or V must be above 0.")


def check_kv_scheme(fields: Fields) -> None:
    """Raises UnsupportedModel for a kv_cache_scheme with zero points."""
    scheme = fields.group("kv_cache_scheme")
    if scheme is not None and scheme.values.get("symmetric", True) is not True:
        raise UnsupportedModel(
            f"{scheme.place}: K and V that are not symmetric cannot be read.",
            why="Zero points of K and V are not implemented.",
            fix=FIX,
        )


def kv_scale_sentence(names: Iterable[str], kv_format: str) -> str | None:
    """Returns a sentence that tells the user why the checkpoint's scales of K and V are not used with `kv_format`; None
    where the checkpoint has no such scales. names: the names of the checkpoint's tensors."""
    count = sum(1 for name in names if KV_SCALE.fullmatch(name))
    if not count:
        return None
    own = "have a scale of their own for each position and head" if kv_format.startswith("int") else "need none"
    return f"The checkpoint's {count} scales of K and V are for FP8: K and V in {kv_format} {own}."
