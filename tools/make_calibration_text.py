"""Makes assets/calibration/text.txt: `twostroke quantize` measures inputs on this text when it is given no other.

The text has questions with answers of spark's corpus (never its held-out questions), the guides, and some Python and
JSON of this project. They come in turn, so that any run of a few hundred tokens has several kinds.

    python -m tools.make_calibration_text

The text is kept as it was made. Made again from changed sources it would differ, and so would every calibrated file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from tools.spark.corpus import load

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/twostroke/assets/calibration/text.txt"
CODE = (
    "src/twostroke/ops/quant/codec.py",
    "src/twostroke/runner/sampling/choose.py",
    "src/twostroke/engine/cache/prefix_tree.py",
)
DATA = ("src/twostroke/assets/spark/config.json", "src/twostroke/assets/spark/tokenizer_config.json")
PIECE = 1500
MOST_PIECES = 60


def pieces(texts: list[str]) -> Iterator[str]:
    """Yields each text in parts of about PIECE characters, cut between paragraphs."""
    for text in texts:
        part = ""
        for paragraph in text.split("\n\n"):
            part += paragraph + "\n\n"
            if len(part) >= PIECE:
                yield part
                part = ""
        if part.strip():
            yield part


def main() -> None:
    """Write the text to its file in assets."""
    pairs = [f"Question: {entry.questions[0]}\nAnswer: {entry.answer}" for entry in load()]
    talks = ["\n\n".join(pairs[at : at + 6]) + "\n\n" for at in range(0, len(pairs), 6)]
    guides = list(pieces([path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/guides").glob("*.md"))]))
    others = list(pieces([(ROOT / name).read_text(encoding="utf-8") for name in (*CODE, *DATA)]))
    columns = [talks[:MOST_PIECES], guides[:MOST_PIECES], others[:MOST_PIECES]]
    mixed = (part for row in itertools.zip_longest(*columns, fillvalue="") for part in row)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text("".join(mixed), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
