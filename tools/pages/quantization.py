"""Makes docs/quantization.md: what each format of weights, K and V costs on spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.pages.kl import kl_table
from tools.pages.published import published_tables

from twostroke.ops.quant.formats import FORMATS
from twostroke.quantize.driver.methods import METHODS
from twostroke.quantize.gguf.write import MIXES
from twostroke.types.spec.formats import KVKind

FILE = Path(__file__).resolve().parents[2] / "docs" / "quantization.json"
EXACT = "f32"

LOADED = tuple(f"--weights {name}" for name in FORMATS if name != EXACT)
WRITTEN = (*(f"--to {name}" for name in METHODS), *(f"--to gguf:{name}" for name in MIXES))
KEPT = tuple(f"--kv-format {kind.name.lower()}" for kind in KVKind if kind is not KVKind.F32)
KEYS = "--to keys "
SCALED = tuple(f"{KEYS}--kv-format {kind.name.lower()}" for kind in KVKind if kind.is_integer)
ASKED = (*LOADED, *WRITTEN, *KEPT, *SCALED)
"""Every format that the code rounds to, as the command line writes it."""

HEAD = """# What formats cost

"""
INTRODUCTION = """## Spark, the embedded model

The tables of published models above decide; these are the quick test of every format that the code rounds to.

Each row compares a model with itself in float32 on the same tokens: the dialogues of `tools/spark/dialogues.py`, which
are spark's held-out questions with their answers. The questions are not in the calibration text; answers of the same
corpus are.

- **KL**: the mean of KL(float32 || format) over all positions, in nats.
- **Perplexity**: that of the format, divided by that of float32.
- **Same best token**: the share of positions whose most likely token is float32's. Greedy answers differ where it
  is not.
- **Bits**: of one weight, in memory: scales, padding, and the matrices that stay in bfloat16 are counted. For K and V,
  of one number.

`--weights` rounds when the model is loaded, without calibration. `--to` is `twostroke quantize`, calibrated on the
embedded text with {tokens:,} tokens; GGUF files are not calibrated. `--kv-format` is how K and V are kept; weights are
float32 there. With `--to keys` before it, K has the factors that `twostroke quantize --to keys` found on that text.
Speculation is not in the tables, because it changes no answer.

**Spark is small** ({parameters:,} parameters, {hidden} channels), and its embedding, a fifth of it, stays in bfloat16
with `--to`: bits of a weight are fewer in larger models. The second model is spark with outliers
(`tools/spark/outliers.py`). In float32 it computes the same. But a few channels after each norm are 32 times as large,
and one pair of channels of each head's keys is 8 times as large.

- **Tok/s**: tokens a second of one greedy answer of {new_tokens} tokens, the median of several, with {threads} threads
  on this machine: {machine}. In float32 it is {f32_tokens_per_second:,}. Both models have the same matrices, and spark
  alone is timed. Its weights fit into the cache of a processor, so that a format saves less time than in a large model:
  `docs/benchmarks.md` has the speed of those.

Formats that are only read are not listed (`docs/guides/quantized.md`). Codes and scales are kept as the file has them,
so the loss is that of the program that wrote the file.

The records are in `docs/quantization.json`. `python -m tools.errors.measure_formats` measures them again and writes
this page; with `--speed` it measures the last column alone.
"""


def quantization_page(record: Mapping[str, Any] | None = None) -> str:
    """Returns the page with its tables. Raises SystemExit for a format of the code without a record or a speed, and for
    a record whose format no longer exists."""
    if record is None:
        record = json.loads(FILE.read_text())
    models = record["models"]
    for model, rows in models.items():
        found = [row["format"] for row in rows]
        different = sorted(set(found) ^ set(ASKED))
        if different:
            raise SystemExit(
                f"docs/quantization.json and the code do not have the same formats ({model}: {', '.join(different)}). "
                "Run: python -m tools.errors.measure_formats"
            )
    untimed = [row["format"] for row in models["spark"] if "tokens_per_second" not in row]
    if untimed or "speed" not in record:
        raise SystemExit(
            f"docs/quantization.json does not say how fast {', '.join(untimed) or 'float32'} is. "
            "Run: python -m tools.errors.measure_formats --speed"
        )
    lines = [HEAD + published_tables(), INTRODUCTION.format(**record["spark"], **record["speed"])]
    for title, formats in (("Weights", (*LOADED, *WRITTEN)), ("K and V", (*KEPT, *SCALED))):
        lines.append(f"## {title}\n")
        lines.append("| model | format | bits | KL | perplexity | same best token | tok/s |")
        lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
        for model, rows in models.items():
            by_format = {row["format"]: row for row in rows}
            lines += [_row(model, by_format[name]) for name in formats]
        lines.append("")
    return "\n".join([*lines, kl_table()])


def _row(model: str, row: Mapping[str, Any]) -> str:
    speed = f"{row['tokens_per_second']:,}" if "tokens_per_second" in row else ""
    return (
        f"| {model} | `{row['format']}` | {row['bits']:.2f} | {row['kl_nats']:.1e} "
        f"| {row['perplexity_ratio']:.4f} | {row['same_best_token']:.2%} | {speed} |"
    )
