"""The sampling values of a request that leaves some of them open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIMITS = ("top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "mirostat", "adaptive_target", "samplers")
"""The fields that decide which tokens may be drawn at all."""
LEAST_SHARE = 0.1
"""The min_p of requests without any limit: tokens that are less likely than this share of the likeliest token are not
drawn. ADR 84 has the measurements."""


def filled(asked: Mapping[str, Any], published: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sampling values of a request, by their names in SamplingParams. asked: the values that the request
    sets. published: the values of the model's publisher, or of the server's owner. When neither sets a limit, min_p
    is LEAST_SHARE."""
    values = {**published, **asked}
    if not any(name in values for name in LIMITS):
        values["min_p"] = LEAST_SHARE
    return values
