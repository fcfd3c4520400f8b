"""File trees of other machines. A text names each file below the root and its content, one file a line."""

from __future__ import annotations

import operator
import re
from pathlib import Path

STEPS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
FOLDER = Path(__file__).parent / "topologies"


def planted(name: str, root: Path) -> Path:
    """Writes the tree of `topologies/NAME.txt` below `root`. "cpu{0-3}/x: y" means one file for each of the four
    numbers."""
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        path, colon, content = line.partition(": ")
        if not colon or line.startswith("#"):
            continue
        for place, text in _each(path, content):
            file = root / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
    return root


def _each(path: str, content: str) -> list[tuple[str, str]]:
    before, brace, rest = path.partition("{")
    if not brace:
        return [(path, content)]
    numbers, _, after = rest.partition("}")
    first, _, last = numbers.partition("-")
    return [(f"{before}{n}{after}", _filled(content, n)) for n in range(int(first), int(last) + 1)]


def _filled(content: str, number: int) -> str:
    """Replaces "{n}" by the number. "{n+64}", "{n/2*2}" and the like are computed from left to right."""
    return re.sub(r"\{n([^}]*)\}", lambda term: str(_value(term[1], number)), content)


def _value(steps: str, value: int) -> int:
    for sign, digits in re.findall(r"([-+*/])(\d+)", steps):
        value = STEPS[sign](value, int(digits))
    return value
