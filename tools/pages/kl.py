"""Makes the chapter of docs/quantization.md on llama.cpp: which engine is nearer to float32 on the same file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "docs" / "kl.json"
TYPES = ("Q4_0", "Q8_0", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_XS")
PEER, ENGINE = "llama.cpp", "twostroke"
KV_EXACT, WEIGHTS_ALONE = "twostroke, K and V in float32", "the file's values in float32"

INTRODUCTION = """## Next to llama.cpp

llama.cpp (llama-cpp-python {version}) and Twostroke read the same GGUF file and the same {positions:,} positions. Both
use their defaults: llama.cpp keeps K and V in float16, and Twostroke keeps them in int8. A cell with two numbers has
llama.cpp's first. Both are compared with the float32 model. From its float32 file llama.cpp's logits are
{agreement} nats away on average.

The files are written by llama.cpp's own quantizer or by `twostroke quantize --to gguf:`. The last two columns are KL of
Twostroke with K and V in float32, and with the file's values, activations, K and V in float32: what the file alone
costs.

{verdicts}

Both engines multiply by activations that are rounded to int8, with one scale for 32 columns next to Q4_0, Q8_0 and
their kin, and for 256 next to K-quants.

`python -m tools.errors.measure_kl` measures this table again. It was measured on: {machine}.

| model | file | written by | KL | 99% are below | largest | perplexity | same best token | K, V f32 | file alone |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def kl_table(record: Mapping[str, Any] | None = None) -> str:
    """Returns the chapter. Its sentences name the files on which this engine is farther from float32 than llama.cpp."""
    if record is None:
        record = json.loads(FILE.read_text())
    rows = [row for row in record["rows"] if ENGINE in row]
    exact = max(row[PEER]["kl_nats"] for row in record["rows"] if ENGINE not in row)
    verdicts = "\n\n".join(each for each in (verdict(rows), greedy(rows)) if each)
    said = {**record, "agreement": f"{exact:.0e}", "verdicts": verdicts}
    return INTRODUCTION.format(**said) + "".join(f"{_line(row)}\n" for row in rows)


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a list of the files on which this engine's KL is larger than llama.cpp's, with a sentence before it."""
    larger: dict[str, list[str]] = {}
    for row in rows:
        if row[ENGINE]["kl_nats"] > row[PEER]["kl_nats"]:
            larger.setdefault(row["type"], []).append(f"{row['model']} by {row['writer']}")
    if not larger:
        return "Twostroke's KL is no larger than llama.cpp's on any file."
    named = "\n".join(f"- {kind}: {', '.join(where)}" for kind, where in larger.items())
    return f"Twostroke's KL is larger than llama.cpp's on these files, and no larger on all others.\n\n{named}"


def greedy(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence on how far both engines' greedy answers agree on the files of `twostroke quantize`; empty when
    none was measured."""
    answers = [row["greedy"] for row in rows if "greedy" in row]
    if not answers:
        return ""
    same, tokens = (sum(each[key] for each in answers) for key in ("same", "tokens"))
    of = f"{same:,} of {tokens:,} greedy tokens"
    return f"On the {len(answers)} files of `twostroke quantize`, {of} are the same up to the first that differs."


def _line(row: Mapping[str, Any]) -> str:
    theirs, ours = row[PEER], row[ENGINE]
    cells = [row["model"], row["type"], row["writer"]]
    cells += [f"{theirs[key]:.1e}, {ours[key]:.1e}" for key in ("kl_nats", "kl_p99", "kl_max")]
    cells.append(f"{theirs['perplexity_ratio']:.4f}, {ours['perplexity_ratio']:.4f}")
    cells.append(f"{theirs['same_best_token']:.2%}, {ours['same_best_token']:.2%}")
    cells += [f"{row[how]['kl_nats']:.1e}" for how in (KV_EXACT, WEIGHTS_ALONE)]
    return "| " + " | ".join(cells) + " |"
