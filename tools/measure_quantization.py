"""Measures what the integer weight formats cost in accuracy, at groups of 64 to 512 columns.

Four cases of one random (rows, columns) matrix and one batch of activations, each Gaussian or with outliers: 1% of the
columns ten times as large (weights), 0.5% of the columns thirty times as large (activations). Two errors, relative RMS:
of the weights, and of the linear's output against float64 with the unrounded weights and activations.

    python tools/measure_quantization.py [--rows 512] [--columns 2048] [--tokens 64] [--seed 0] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from twostroke.ops.operands import F32Array, unpack
from twostroke.ops.products import linear
from twostroke.ops.quant.codec import pack_weight
from twostroke.types.spec.formats import WeightFormat, WeightKind

GROUPS = (64, 128, 256, 512)
KINDS = (WeightKind.INT8, WeightKind.INT4)
WEIGHT_OUTLIERS = (0.01, 10.0)
ACTIVATION_OUTLIERS = (0.005, 30.0)


@dataclass(frozen=True)
class Measurement:
    """Errors are relative RMS; bits include the scales."""

    weights: str
    activations: str
    kind: str
    group: int
    bits_per_weight: float
    weight_error: float
    output_error: float


def random_matrix(rng: np.random.Generator, rows: int, columns: int, outliers: tuple[float, float] | None) -> F32Array:
    """(rows, columns) standard normal float32; `outliers` is (share of the columns, factor)."""
    values = rng.standard_normal((rows, columns), dtype=np.float32)
    if outliers is not None:
        share, factor = outliers
        chosen = rng.choice(columns, max(1, round(share * columns)), replace=False)
        values[:, chosen] *= np.float32(factor)
    return values


def relative_rms(found: np.ndarray, exact: np.ndarray) -> float:
    """RMS of the difference over RMS of `exact`."""
    return float(np.sqrt(np.mean((found - exact) ** 2.0) / np.mean(np.square(exact, dtype=np.float64))))


def measure(rows: int, columns: int, tokens: int, seed: int) -> Iterator[Measurement]:
    """All cases, in order."""
    for weight_name, weight_outliers in (("gaussian", None), ("outlier columns", WEIGHT_OUTLIERS)):
        for x_name, x_outliers in (("gaussian", None), ("outlier columns", ACTIVATION_OUTLIERS)):
            rng = np.random.default_rng(seed)
            weights = random_matrix(rng, rows, columns, weight_outliers)
            x = random_matrix(rng, tokens, columns, x_outliers)
            exact = x.astype(np.float64) @ weights.astype(np.float64).T
            for weight_format in (WeightFormat(kind, group) for kind in KINDS for group in GROUPS):
                packed = pack_weight(weights, weight_format)
                out = np.empty((tokens, rows), np.float32)
                linear.reference(out, x, packed)
                yield Measurement(
                    weights=weight_name,
                    activations=x_name,
                    kind=weight_format.kind.name.lower(),
                    group=weight_format.group,
                    bits_per_weight=weight_format.bits_per_weight,
                    weight_error=relative_rms(unpack(packed), weights),
                    output_error=relative_rms(out, exact),
                )


def table(measurements: list[Measurement]) -> str:
    """A Markdown table."""
    lines = [
        "| weights | activations | format | group | bits a weight | weight error | output error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {m.weights} | {m.activations} | {m.kind} | {m.group} | {m.bits_per_weight:.3f} "
        f"| {m.weight_error:.2%} | {m.output_error:.2%} |"
        for m in measurements
    ]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    found = list(measure(arguments.rows, arguments.columns, arguments.tokens, arguments.seed))
    print(json.dumps([asdict(m) for m in found], indent=2) if arguments.json else table(found))


if __name__ == "__main__":
    main()
