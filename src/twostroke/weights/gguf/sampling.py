"""The parameters by which a file's publisher wants tokens chosen: the keys general.sampling.*, in the form of
generation_config.json."""

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
"""Key -> field. The other keys of this kind belong to samplers that Twostroke does not have."""
DIGITS = 6
"""The number of significant digits to which a number of sampling keys is rounded. Files store 32-bit floats, whose
further digits are rounding errors."""


def sampling_of(values: Mapping[str, Value]) -> dict[str, float | int]:
    """Returns the fields that the file gives; a value that is not a number is left out."""
    found = {field: values.get(PREFIX + key) for key, field in FIELDS.items()}
    return {
        field: value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")
        for field, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
