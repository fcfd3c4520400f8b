"""Measures errors, bits and speeds of engines on published models, and writes docs/published.json and its pages.

    python -m tools.errors.measure_published --folder NAME=FOLDER ...  errors and bits; the machine may be busy
    ... --speed                                                        and speeds, in turn: a quiet machine
    python -m tools.errors.measure_published --result NAME=FILE ...    takes over what `bench compare --save` wrote

--only and --kv-format choose formats, as --weights and --kv-format of `bench compare` do; records of other formats are
kept. A peer that is not installed is left out, and a line tells how to install it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.pages.published import EXACT, FILE, SPEEDS

from twostroke.lab.bench.cases import BITS, ERROR, KL, SAME, decode, prefill
from twostroke.lab.bench.run_compare import Asked, run
from twostroke.ops.quant.formats import WEIGHT_NAMES
from twostroke.types.spec.formats import KVKind

FILES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_1", "IQ4_NL", "Q4_0")
CASES = (prefill(512), decode(1, 512), decode(8, 512))
KEPT = {BITS.name: "bits", ERROR.name: "error", KL.name: "kl", SAME.name: "same"}
OTHER_KV = ", K and V "
LLAMA_CPP = "llama_cpp"


def rows_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of a comparison's JSON: one for each engine, format of weights and format of K and V that has an
    error."""
    made = []
    for key, found in result["raw"].items():
        name, _, kv = key.partition(OTHER_KV)
        engine, _, weights = name.partition(" ")
        if ERROR.name not in found or (engine == LLAMA_CPP and weights in WEIGHT_NAMES):
            continue  # llama.cpp's int8 is its Q8_0, which has a row of that name
        row: dict[str, Any] = {"engine": engine, "weights": weights, "kv": kv or "bf16"}
        row |= {short: round(found[case][0], 5) for case, short in KEPT.items() if case in found}
        speeds = {case: round(sorted(found[case])[len(found[case]) // 2], 2) for case in SPEEDS if case in found}
        made.append({**row, "speed": speeds} if speeds else row)
    return made


def merged(known: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the known rows updated with the rows found now. Values that were not measured again stay. A row measured
    without a speed keeps its old speed, which belongs to the same format."""
    rows = {_key(row): dict(row) for row in known}
    for row in found:
        rows[_key(row)] = {**rows.get(_key(row), {}), **row}
    return [rows[key] for key in sorted(rows, key=_order)]


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["engine"], row["weights"], row["kv"]


def _order(key: tuple[str, str, str]) -> tuple[int, str, int, str]:
    """Returns the sort key of a row: float32 first, then our own formats, then others; formats of K and V by falling
    bits."""
    engine, weights, kv = key
    own = WEIGHT_NAMES.index(weights) if weights in WEIGHT_NAMES else len(WEIGHT_NAMES)
    return own, weights, list(KVKind).index(KVKind[kv.upper()]), engine


def measured(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Compares the engines on one folder. Returns the comparison as JSON."""
    comparison = Asked(
        shape="",
        folder=folder,
        weights=tuple(asked.only.split(",")),
        peers=tuple(name for name in asked.peers.split(",") if name not in ("", "none")),
        peers_folder=asked.peers_folder,
        rounds=asked.rounds if asked.speed else 1,
        threads=asked.threads,
        cases=CASES if asked.speed else (),
        kv=tuple(KVKind[name.upper()] for name in asked.kv_format.split(",") if name not in ("", "none", "bf16")),
    )
    *_, result = run(comparison, time.perf_counter, lambda line: print(line, file=sys.stderr, flush=True), None)
    return result.as_json()


def with_result(record: dict[str, Any], model: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record with the rows of one more comparison. The machine is that of the last speeds, because errors
    hardly depend on it."""
    models = dict(record.get("models", {}))
    known = models.get(model, {})
    found = rows_of(result)
    rows = merged(known.get("rows", []), found)
    timed = any("speed" in row for row in found)
    machine = result["machine"] if timed else known.get("machine", result["machine"])
    positions = result.get("positions") or known.get("positions")
    models[model] = {"positions": positions, "machine": machine, "rows": rows}
    return {**record, "models": models}


def pair(text: str) -> tuple[str, Path]:
    """Parses NAME=PATH. Raises ArgumentTypeError for other texts."""
    name, found, path = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, Path(path)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pair, nargs="+", default=(), metavar="NAME=FOLDER")
    parser.add_argument("--result", type=pair, nargs="+", default=(), metavar="NAME=FILE")
    own = [name for name in WEIGHT_NAMES if name != EXACT]
    parser.add_argument("--only", default=",".join([EXACT, *own, *FILES]))
    parser.add_argument("--kv-format", default="int8,int4")
    parser.add_argument("--peers", default="openvino,llama_cpp")
    parser.add_argument("--peers-folder", type=Path)
    parser.add_argument("--speed", action="store_true", help="measure speeds, too: the machine must be quiet")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    record: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, path in asked.result:
        record = with_result(record, name, json.loads(path.read_text()))
    for name, path in asked.folder:
        record = with_result(record, name, measured(path, asked))
        FILE.write_text(json.dumps(record, indent=1) + "\n")
    FILE.write_text(json.dumps(record, indent=1) + "\n")
    print("Write the pages now: make docs", file=sys.stderr)


if __name__ == "__main__":
    main()
