"""Makes the tables of published models: error, bits and speed of each engine and format, from docs/published.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twostroke.ops.quant.formats import WEIGHT_NAMES
from twostroke.types.spec.formats import KVKind

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "published.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- errors: written by tools/generate_docs.py -->\n", "<!-- end of errors -->\n"
TITLES = {"twostroke": "Twostroke", "llama_cpp": "llama.cpp", "openvino": "OpenVINO"}
OURS, EXACT = "twostroke", "f32"
README_SPEEDS = {"prefill 512": "prompt of 512,", "decode 1 x 512": "one stream,", "decode 8 x 512": "eight streams,"}
SPEEDS = ("prefill 512", "decode 1 x 512", "decode 8 x 512")
DEFAULT = {"engine": OURS, "weights": "int8", "kv": "bf16"}
"""The row that speeds are divided by: the default weights, measured in the same run."""
SLACK_BITS = 0.05
"""The largest difference in bits of formats that count as equal. Each engine counts scales and norms in its own way."""
Row = Mapping[str, Any]

INTRODUCTION = """## Published models

The truth is the same checkpoint in float32. The models are 16-bit folders made of the published files, with noise of
one step so that no grid of a file helps. The texts are those of `twostroke bench compare`, {positions} positions.

- **Error**: the mean of |log p(engine) - log p(float32)| over the 20 likeliest tokens, weighted by float32's
  probability.
- **Same best token**: the share of positions whose likeliest token is float32's. **KL**: in nats.
- **Bits**: of all weights, embedding and head included.
- **Ours, as many bits**: our format with the least error that takes at most {slack} bits more than the row, and its
  error.
- **Prefill, one stream, eight**: tokens a second of a prompt of 512 tokens, and of one and eight streams at 512 tokens.
  They are divided by those of our int8 in the same run. A cell is empty where no speed was measured.

In the first table of a model, Twostroke keeps K and V in bfloat16, llama.cpp in float16. llama.cpp wrote its files
without calibration. OpenVINO reads each text at once, so that its error has no rounding of K and V.

`python -m tools.errors.measure_published --folder NAME=FOLDER` measures them again, without a clock unless `--speed` is
given. The records are in `docs/published.json`.
"""


def read_record() -> dict[str, Any]:
    """Returns the content of docs/published.json."""
    return dict(json.loads(FILE.read_text()))


def published_tables(record: Mapping[str, Any] | None = None) -> str:
    """Returns the chapter. Raises SystemExit for a format of our own that no model has a record of."""
    record = read_record() if record is None else record
    lines = [INTRODUCTION.format(positions=_positions(record["models"]), slack=SLACK_BITS)]
    _check([row for found in record["models"].values() for row in found["rows"]])
    for model, found in record["models"].items():
        lines += [f"### {model}", "", *_weights_table(found["rows"]), "", *_kv_table(found["rows"]), ""]
        if missing := _missing(found["rows"]):
            lines += [f"Not measured on this model: {', '.join(f'`{name}`' for name in missing)}.", ""]
    return "\n".join(lines)


def readme_page(record: Mapping[str, Any] | None = None, text: str | None = None) -> str:
    """Returns README.md with a new table: the errors of each model, and the speeds of the first model that has any.

    Formats for which that model has no speed are left out.
    """
    record = read_record() if record is None else record
    before, rest = (README.read_text() if text is None else text).split(BEGIN)
    by_model = {model: {_key(row): row for row in found["rows"]} for model, found in record["models"].items()}
    timed = next((model for model in by_model if any("speed" in row for row in by_model[model].values())), "")
    heads = [*(f"error, {model}" for model in by_model), *(f"{case} tok/s" for case in README_SPEEDS.values())]
    lines = ["", f"| weights | bits | {' | '.join(heads)} |", "| --- | ---: |" + " ---: |" * len(heads)]
    for key, row in sorted(by_model.get(timed, {}).items(), key=lambda each: -each[1].get("bits", 0)):
        if row["kv"] != "bf16" or "speed" not in row or not _is_own(row):
            continue
        cells = [_shown(rows.get(key), "error", "{:.3f}") for rows in by_model.values()]
        cells += [_shown(row["speed"], case, "{:.0f}") for case in README_SPEEDS]
        lines.append(f"| {_name(row)} | {_shown(row, 'bits', '{:.1f}')} | {' | '.join(cells)} |")
    said = f"Speeds: {timed}, two threads, {record['models'][timed]['machine']}." if timed else "No speed was measured."
    return before + BEGIN + "\n".join([*lines, "", said, "", ""]) + END + rest.split(END)[1]


def best_of_ours(rows: Sequence[Row], bits: float) -> Row | None:
    """Returns our own format with the least error among those of at most `bits` plus SLACK_BITS, with K and V in
    bfloat16. Returns None when there is none."""
    fitting = [row for row in rows if row["engine"] == OURS and _is_format(row) and row["kv"] == "bf16"]
    return min((row for row in fitting if row["bits"] <= bits + SLACK_BITS), key=lambda row: row["error"], default=None)


def dominated(rows: Sequence[Row]) -> list[str]:
    """Returns our own formats for which another of our formats has no more bits and less error."""
    own = [row for row in rows if row["engine"] == OURS and _is_format(row) and row["kv"] == "bf16"]
    return [
        row["weights"]
        for row in own
        if any(other["bits"] <= row["bits"] and other["error"] < row["error"] for other in own)
    ]


def _check(rows: Sequence[Row]) -> None:
    if missing := _missing(rows):
        raise SystemExit(
            f"docs/published.json has no record of {', '.join(missing)}. Run: python -m tools.errors.measure_published"
        )


def _missing(rows: Sequence[Row]) -> list[str]:
    """Returns our own formats without a row. Formats of K and V need a row with weights in float32."""
    weights = {row["weights"] for row in rows if row["engine"] == OURS}
    kinds = {row["kv"] for row in rows if row["engine"] == OURS and row["weights"] == EXACT}
    missing = [f"--weights {name}" for name in WEIGHT_NAMES if name not in weights]
    return missing + [f"--kv-format {kind.name.lower()}" for kind in KVKind if kind.name.lower() not in {*kinds, EXACT}]


def _weights_table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| engine, weights | bits | error | same best token | KL | ours, as many bits | prefill | one stream | eight |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    shown = [row for row in rows if row["kv"] == "bf16" and row["weights"] != EXACT]
    for row in sorted(shown, key=lambda each: (-each["bits"], each["error"])):
        best = None if _is_format(row) and row["engine"] == OURS else best_of_ours(rows, row["bits"])
        ours = "" if best is None else f"{best['weights']}, {best['error']:.3f}"
        lines.append(f"| {_name(row)} | {row['bits']:.2f} | {_figures(row)} | {ours} | {_speeds(row, rows)} |")
    beaten = dominated(rows)
    said = ", ".join(beaten) if beaten else "None"
    return [*lines, "", f"Another format of ours has less error at no more bits next to these: {said}."]


def _kv_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| weights | K and V | error | same best token | KL |", "| --- | --- | ---: | ---: | ---: |"]
    own = [row for row in rows if row["engine"] == OURS and _is_format(row)]
    several = {row["weights"] for row in own if row["kv"] != "bf16"}
    for row in sorted(own, key=lambda each: -each["bits"]):
        if row["weights"] in several:
            lines.append(f"| {row['weights']} | {row['kv']} | {_figures(row)} |")
    return lines


def _figures(row: Row) -> str:
    return f"{row['error']:.4f} | {row['same']:.1%} | {row['kl']:.4f}"


def _speeds(row: Row, rows: Sequence[Row]) -> str:
    base = next((each for each in rows if all(each[key] == value for key, value in DEFAULT.items())), None)
    measured, against = row.get("speed", {}), {} if base is None else base.get("speed", {})
    cells = [f"{measured[each] / against[each]:.2f}" if each in measured and each in against else "" for each in SPEEDS]
    return " | ".join(cells)


def _positions(models: Mapping[str, Any]) -> str:
    return " and ".join(str(found["positions"]) for found in models.values())


def _key(row: Row) -> tuple[str, str, str]:
    return row["engine"], row["weights"], row["kv"]


def _name(row: Row) -> str:
    return f"{TITLES[row['engine']]} {row['weights']}" + (", the same file" if _is_same_file(row) else "")


def _is_format(row: Row) -> bool:
    """Returns whether the row's weights are in a format of our own, not in a type of GGUF files."""
    return bool(row["weights"].islower())


def _is_same_file(row: Row) -> bool:
    return row["engine"] == OURS and not _is_format(row)


def _is_own(row: Row) -> bool:
    """Returns whether the row is an engine's own format or type of file, not our reading of llama.cpp's files."""
    return not _is_same_file(row)


def _shown(row: Row | None, key: str, form: str) -> str:
    return "-" if row is None or key not in row else form.format(row[key])
