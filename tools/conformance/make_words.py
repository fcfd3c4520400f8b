"""Writes words.jsonl, the data of spark_words.yaml, from the glossary.

    python tools/conformance/make_words.py FOLDER
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

GLOSSARY = Path(__file__).parents[2] / "docs" / "GLOSSARY.md"
CHOICES = 4


def words() -> list[tuple[str, str]]:
    """Returns (word, meaning) of each row of the glossary."""
    rows = [line.strip("| ").split(" | ", 1) for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    return [(row[0], row[1]) for row in rows if len(row) == 2 and row[0] != "word" and "---" not in row[0]]


def main(folder: Path) -> None:
    """Writes the rows of words.jsonl into a folder. The rows are the same each time."""
    dice, known = random.Random(7), words()
    with open(folder / "words.jsonl", "w", encoding="utf-8") as file:
        for word, meaning in known:
            others = dice.sample([each for name, each in known if name != word], CHOICES - 1)
            choices = [meaning, *others]
            dice.shuffle(choices)
            row = {"word": word, "choices": choices, "answer": choices.index(meaning)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
