"""The fields of requests for samplers, in addition to top_k, top_p and min_p. They have llama.cpp's names on every
route."""

from __future__ import annotations

import msgspec


class AskedSamplers(msgspec.Struct, kw_only=True):
    """The fields of a request for the samplers that are added to top-k, top-p and min-p.
    types/sampling/sampler_fields.py tells the meaning of each field, and checks them."""

    typical_p: float | None = None
    top_n_sigma: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    samplers: list[str] | None = None
