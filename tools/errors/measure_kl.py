"""Measures how far the logits of GGUF files are from the float32 model's, by this engine and by llama.cpp.

Spark, and spark with outliers, are written as float32 GGUF files. llama.cpp quantizes them. For the mixes that
`twostroke quantize` has, this project writes files too. Both engines read the same file and the same text: the
dialogues of tools/spark/dialogues.py. The exact logits are this engine's with everything in float32. The first row of a
model shows how far llama.cpp's logits are from the exact ones on the float32 file. Files of `twostroke quantize` also
get greedy answers. Writes docs/kl.json and its page, docs/quantization.md.

    python -m tools.errors.measure_kl [--json] [--types Q4_K_M ...] [--dialogues 16] [--peers FOLDER]

--json prints the records and writes nothing. Needs: twostroke bench peers install llama_cpp.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.errors.format_speed import machine
from tools.generate_docs import PAGES, ROOT
from tools.kl.divergence import divergence, joined
from tools.kl.engines import llama_cpp, our_answers, our_logits, their_logits
from tools.pages.kl import ENGINE, FILE, KV_EXACT, PEER, TYPES, WEIGHTS_ALONE
from tools.spark.dialogues import dialogues
from tools.spark.outliers import write_outlier_spark

from twostroke.assembly.settings.env import read_machine
from twostroke.assets import spark_path
from twostroke.lab.bench.peers.session import Session
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.quant.formats import STORED
from twostroke.quantize.driver.calibrate import no_progress
from twostroke.quantize.gguf.write import MIXES, GgufMix, write_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.spec.formats import KVKind

TURNS, DIALOGUES = 6, 16
THREADS = 2
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 8, 64, 32
EXACT = GgufMix("F32", 0, "F32", "F32")

OURS = {ENGINE: (STORED, KVKind.INT8), KV_EXACT: (STORED, KVKind.F32), WEIGHTS_ALONE: ("f32", KVKind.F32)}
"""The ways in which this engine reads a file: (weights, K and V) of its default, and of ways that round less."""
Summary = dict[str, float]


@dataclass(frozen=True, eq=False)
class Measured:
    """A model. truth: the exact logits of the texts, one array for each text. place: the folder for files that are
    written."""

    name: str
    folder: Path
    texts: Sequence[I32Array]
    truth: Sequence[F32Array]
    place: Path

    def summary(self, logits: Iterable[F32Array]) -> Summary:
        """Returns how far the logits of the texts are from the exact ones."""
        return joined(map(divergence, self.truth, logits, self.texts)).summary()

    def theirs(self, session: Session, path: Path, kv: str) -> Summary:
        """Returns how far llama.cpp's logits of the texts are from the exact ones."""
        output = self.place / "logits"
        texts = [ids.tolist() for ids in self.texts]
        session.ask("logits", path=str(path), texts=texts, output=str(output), threads=THREADS, kv=kv)
        found = self.summary(their_logits(output, self.texts))
        output.unlink()
        return found

    def row(self, session: Session, path: Path, kind: str, writer: str) -> dict[str, Any]:
        """Returns the row of one file, read by both engines."""
        row: dict[str, Any] = {"model": self.name, "type": kind, "writer": writer, "bytes": path.stat().st_size}
        row[PEER] = self.theirs(session, path, "f16")
        for how, (weights, kv) in OURS.items():
            row[how] = self.summary(our_logits(path, self.texts, THREADS, weights, kv))
        if writer == ENGINE:
            row["greedy"] = self.greedy(session, path)
        return row

    def greedy(self, session: Session, path: Path) -> dict[str, int]:
        """Returns how many tokens of greedy answers are the same in both engines before the first that differs."""
        prompts = [ids[:PROMPT_TOKENS].tolist() for ids in self.texts[:PROMPTS]]
        asked: dict[str, Any] = {"path": str(path), "prompts": prompts, "count": NEW_TOKENS, "threads": THREADS}
        answers = zip(
            session.ask("greedy", **asked, kv="f16"), our_answers(path, prompts, NEW_TOKENS, THREADS), strict=True
        )
        return {"tokens": len(prompts) * NEW_TOKENS, "same": sum(common(*pair) for pair in answers)}


def files(session: Session, exact: Path, folder: Path, types: Sequence[str]) -> Iterator[tuple[str, str, Path]]:
    """Yields the type, the writer and the path of each file. exact: the float32 file of `folder`."""
    for kind in types:
        path = exact.with_name(f"{kind}.gguf")
        session.ask("quantize", source=str(exact), kind=kind, path=str(path), threads=THREADS)
        yield kind, PEER, path
    for kind in (kind for kind in types if kind in MIXES):
        yield kind, ENGINE, write_folder(folder, exact.parent / kind, MIXES[kind], "spark", no_progress)


def measured(
    session: Session, name: str, folder: Path, texts: Sequence[I32Array], types: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a model."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        truth = [rows.copy() for rows in our_logits(folder, texts, THREADS, "f32", KVKind.F32)]
        model = Measured(name, folder, texts, truth, place)
        exact = write_folder(folder, place / "exact", EXACT, "spark", no_progress)
        yield {"model": name, "type": "F32", "writer": ENGINE, PEER: model.theirs(session, exact, "f32")}
        for kind, writer, path in files(session, exact, folder, types):
            yield model.row(session, path, kind, writer)


def record(peers: Path, types: Sequence[str], count: int) -> Iterator[dict[str, Any]]:
    """Yields the whole record after each row that was measured."""
    texts = dialogues(Tokenizer.from_folder(spark_path()), TURNS, count)
    facts = {"machine": machine(), "positions": sum(map(len, texts))}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made, llama_cpp(peers, Path(made) / "log") as session:
        facts["version"] = session.ask("version")
        models = {"spark": spark_path(), "spark with outliers": write_outlier_spark(Path(made) / "outliers")}
        for name, folder in models.items():
            for row in measured(session, name, folder, texts, types):
                rows.append(row)
                yield {**facts, "rows": rows}


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns the length of the common beginning of both sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def line(row: dict[str, Any]) -> str:
    """One measured row as a line of progress."""
    found = ", ".join(f"{how} {row[how]['kl_nats']:.2e}" for how in (PEER, *OURS) if how in row)
    return f"{row['model']}, {row['type']} written by {row['writer']}: {found}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the records and write nothing")
    parser.add_argument("--types", nargs="+", metavar="TYPE", choices=TYPES, default=TYPES, help="default: all")
    parser.add_argument("--dialogues", type=int, default=DIALOGUES, help=f"default: {DIALOGUES}")
    parser.add_argument("--peers", type=Path, default=read_machine().cache_folder / "peers", help="environments")
    asked = parser.parse_args()
    began, found = time.monotonic(), {}
    for found in record(asked.peers, asked.types, asked.dialogues):
        print(f"{time.monotonic() - began:5.0f} s  {line(found['rows'][-1])}", file=sys.stderr, flush=True)
        if not asked.json:
            FILE.write_text(json.dumps(found, indent=1) + "\n")
    if asked.json:
        print(json.dumps(found, indent=1))
        return
    page = "docs/quantization.md"
    (ROOT / page).write_text(PAGES[page]())


if __name__ == "__main__":
    main()
