"""How a file's publisher wants tokens chosen: the keys general.sampling.*, as generation_config.json has them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from twostroke.weights.gguf.header import Value

PREFIX = "general.sampling."
FIELDS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
"""Key -> field. The other keys of this kind belong to samplers that are not here."""
DIGITS = 6
"""A number is stored in 32 bits: more digits would be those of its rounding."""


def sampling_of(values: Mapping[str, Value]) -> dict[str, float | int]:
    """The fields that the file gives; a value that is no number is left out."""
    found = {field: values.get(PREFIX + key) for key, field in FIELDS.items()}
    return {
        field: value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")
        for field, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
