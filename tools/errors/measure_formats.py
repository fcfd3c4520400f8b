"""Measures what every format of weights, K and V costs on spark, and writes docs/quantization.json and its page.

Both models of docs/quantization.md are measured: spark, and spark with outliers. The speed of spark in each format is
measured too. With --speed, only the speed is measured and the other records are kept.

    python -m tools.errors.measure_formats [--json] [--speed] [--only FORMAT ...]

--json prints the records and writes nothing. --only measures these formats (as they are asked for: "--kv-format int4"
is "kv-format int4" here) and keeps the other records.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from tools.errors import format_speed
from tools.errors.format_speed import machine, tokens_per_second
from tools.generate_docs import PAGES, ROOT
from tools.pages.quantization import ASKED, FILE, KEYS
from tools.spark.dialogues import dialogues
from tools.spark.outliers import write_outlier_spark

from twostroke.assets import spark_path
from twostroke.ops.operands import I32Array
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.quantize.driver.calibrate import no_progress, quantize_folder
from twostroke.quantize.driver.calibrate_keys import calibrate_keys, key_factors, with_factors
from twostroke.quantize.driver.compare import compare
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.methods import METHODS
from twostroke.quantize.driver.stages import StagedModel
from twostroke.quantize.driver.texts import CalibrationText, read_texts
from twostroke.quantize.gguf.write import MIXES, write_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.spec.formats import KVKind
from twostroke.weights.gguf.unfold import unfold

TURNS, DIALOGUES = 6, 16
CALIBRATION_TOKENS, FEW_TOKENS = 6144, 512
THREADS = 2
SPEED = "tokens_per_second"


@contextmanager
def in_format(asked: str, source: Path, texts: CalibrationText) -> Iterator[StagedModel]:
    """Gives the model of a folder in the format that the command line calls `asked`."""
    option, name = asked.removeprefix(KEYS).split()
    with tempfile.TemporaryDirectory() as place:
        folder, formats = source, format_choice("f32")
        if option == "--weights":
            formats = format_choice(name)
        elif option == "--to":
            made = _written(name, source, Path(place) / "made", texts)
            folder, formats = unfold(made, None) if made.is_file() else made, format_choice(STORED)
        with staged_folder(folder, THREADS, formats) as staged:
            kept = replace(staged, kv=KVKind[name.upper()]) if option == "--kv-format" else staged
            yield with_factors(kept, key_factors(staged, texts)) if asked.startswith(KEYS) else kept


def _written(name: str, source: Path, output: Path, texts: CalibrationText) -> Path:
    """Writes the model in a format. Returns the folder or the GGUF file."""
    if name in METHODS:
        return quantize_folder(source, output, METHODS[name], texts, THREADS).folder
    return write_folder(source, output, MIXES[name.removeprefix("gguf:")], "spark", no_progress)


def speed(asked: str, texts: CalibrationText) -> float:
    """Returns the tokens a second of spark in a format. The values of the codes make no difference to the speed, so few
    tokens calibrate."""
    option, name = asked.removeprefix(KEYS).split()
    with tempfile.TemporaryDirectory() as place:
        made = _written(name, spark_path(), Path(place) / "made", texts) if option == "--to" else spark_path()
        if asked.startswith(KEYS):
            made = Path(shutil.copytree(spark_path(), Path(place) / "made"))
            calibrate_keys(made, made, texts, THREADS, compared=False)
        weights = {"--to": STORED, "--weights": name}.get(option, "f32")
        return tokens_per_second(made, weights, name if option == "--kv-format" else "f32")


def with_speeds(formats: Sequence[str], known: dict[str, Any]) -> dict[str, Any]:
    """Returns the records with the measured speed of these formats, and the machine's name."""
    texts = read_texts(None, Tokenizer.from_folder(spark_path()), 256, FEW_TOKENS)
    facts = {"machine": machine(), "threads": format_speed.THREADS, "new_tokens": format_speed.NEW_TOKENS}
    exact = round(tokens_per_second(spark_path(), "f32", "f32"))
    rows = {row["format"]: row for row in known["models"]["spark"]}
    for asked in formats:
        rows[asked][SPEED] = round(speed(asked, texts))
        print(f"{asked:20} {rows[asked][SPEED]:6,} tok/s", file=sys.stderr, flush=True)
    return {**known, "speed": {**facts, "f32_tokens_per_second": exact}}


def bits_of(asked: str, staged: StagedModel) -> float:
    """Returns the bits that a weight takes in memory, or for a format of K and V, the bits of one number of K and V."""
    if asked.removeprefix(KEYS).startswith("--kv-format"):
        dim = staged.model.paged_kinds[0].head_dim
        return 8 * staged.kv.token_bytes(dim) / (2 * dim)
    weights = staged.model.plain.weights
    total = sum(staged.formats(weight).total_bytes(weight.all_rows, weight.columns) for weight in weights)
    return 8 * total / sum(weight.elements for weight in weights)


def measured(asked: str, source: Path, texts: CalibrationText, runs: Sequence[I32Array]) -> dict[str, Any]:
    """Measures one format on one model. Returns its row."""
    with staged_folder(source, THREADS) as exact, in_format(asked, source, texts) as other:
        whole = compare(exact, other, runs, each=False).whole
        before, after = whole.perplexities
        return {
            "format": asked,
            "bits": round(bits_of(asked, other), 4),
            "kl_nats": float(f"{whole.mean_kl:.3e}"),
            "perplexity_ratio": round(after / before, 5),
            "same_best_token": round(whole.same / whole.positions, 5),
        }


def record(formats: Sequence[str], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the whole record after each format that was measured. The other formats keep their known figures."""
    tokenizer = Tokenizer.from_folder(spark_path())
    texts = read_texts(None, tokenizer, 2048, CALIBRATION_TOKENS)
    runs = dialogues(tokenizer, TURNS, DIALOGUES)
    rows = {name: {row["format"]: row for row in each} for name, each in known.get("models", {}).items()}
    with tempfile.TemporaryDirectory() as place:
        sources = {"spark": spark_path(), "spark with outliers": write_outlier_spark(Path(place) / "outliers")}
        with staged_folder(spark_path(), THREADS) as exact:
            model = exact.model
            facts = {"parameters": model.parameters(), "hidden": model.hidden_size, "tokens": int(texts.used.size)}
        for asked, (name, source) in product(formats, sources.items()):
            own = rows.setdefault(name, {})
            kept = {each: own[asked][each] for each in (SPEED,) if each in own.get(asked, {})}
            row = own[asked] = {**measured(asked, source, texts, runs), **kept}
            print(f"{name:20} {asked:20} {row['kl_nats']:.2e}", file=sys.stderr, flush=True)
            models = {each: [own[one] for one in ASKED if one in own] for each, own in rows.items()}
            yield {**known, "spark": facts, "positions": sum(map(len, runs)), "models": models}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the records and write nothing")
    parser.add_argument("--speed", action="store_true", help="measure nothing but tokens a second")
    parser.add_argument("--only", nargs="+", metavar="FORMAT", default=(), help="default: all")
    asked = parser.parse_args()
    formats = [f"--{name}" for name in asked.only] or list(ASKED)
    unknown = sorted(set(formats) - set(ASKED))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(each[2:] for each in ASKED)}")
    known = json.loads(FILE.read_text()) if FILE.exists() and (asked.only or asked.speed) else {}
    found: dict[str, Any] = known
    for found in () if asked.speed else record(formats, known):
        if not asked.json:
            FILE.write_text(json.dumps(found, indent=1) + "\n")
    found = with_speeds(formats, found)
    if not asked.json:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    if asked.json:
        print(json.dumps(found, indent=1))
    else:
        page = "docs/quantization.md"
        (ROOT / page).write_text(PAGES[page]())


if __name__ == "__main__":
    main()
