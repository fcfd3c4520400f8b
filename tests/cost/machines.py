"""A machine in round numbers, so that tests can work out predictions by hand."""

from __future__ import annotations

from typing import Any

from twostroke.cost.calibration import AttentionRates, Calibration, HostRates, LinearRates
from twostroke.cost.curve import Curve
from twostroke.types.spec.formats import KVKind, WeightKind

SPEC: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}


def flat(value: float) -> Curve:
    """A rate that is the same for any number of rows."""
    return Curve.of([(1.0, value), (512.0, value)])


def linear_rates(scale: float = 1.0) -> LinearRates:
    """Rates that memory limits up to 8 rows, and that are then proportional to the rows. scale: 1 for int8, by bytes
    for the others."""
    cold = Curve.of([(1.0, 32e-12 * scale), (8.0, 32e-12 * scale), (512.0, 2048e-12 * scale)])
    warm = Curve.of([(1.0, 16e-12 * scale), (8.0, 16e-12 * scale), (512.0, 2048e-12 * scale)])
    return LinearRates(cold, warm, flat(1e-10))


def calibration(**changes: Any) -> Calibration:
    """A calibration with figures of all formats."""
    values: dict[str, Any] = {
        "fingerprint": "f" * 20,
        "title": "a processor",
        "threads": 2,
        "memory_bytes": 16 * 10**9,
        "others_share": 0.0,
        "read_bytes_per_s": 40e9,
        "f32_flops_per_s": 400e9,
        "int8_ops_per_s": 1600e9,
        "warm_bytes": 4e6,
        "cold_bytes": 40e6,
        "linear": {kind: linear_rates(scale) for kind, scale in zip(list(WeightKind)[:4], (4, 2, 1, 0.6), strict=True)},
        "attention": {kind: AttentionRates(25e-12, 20e-12, 1e-12, 1e-7, 1e-8, flat(2e-12)) for kind in KVKind},
        "other": flat(3e-11),
        "layer_s": 1e-5,
        "host": HostRates(1e-4, 2e-5, 1e-10),
    }
    return Calibration(**{**values, **changes})
