"""The assembler's report about every kernel on every chip, from a file where the same was assembled before.

    python -m tests.cuda.assembled

writes that file anew after kernels have changed. Each entry has a digest of the PTX and of the assembler. Where the
digest differs, the assembler runs, which takes most of a minute for a chip.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple

from twostroke.backends.cuda import build

KEPT = Path(__file__).with_name("assembled.json")
BY_PTX_OF_ALL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
"""A100, RTX 30, RTX 40 and L4, H100 by the PTX of all chips, B200, B300, RTX 50."""
CHIPS = {**dict.fromkeys(BY_PTX_OF_ALL, "sm_80"), "sm_90a": "sm_90a"}
"""Chips, and the PTX that their driver takes. The last one is H100 and H200."""
AT_COMMITS = "sm_90a"
"""The PTX that is compiled at each commit. It has everything that all chips have, and the waiting that only it has. The
compiler takes half a minute for each PTX."""
FIGURES = (r"Used (\d+) registers", r"(\d+) bytes stack", r"(\d+) bytes spill")


class Assembled(NamedTuple):
    """kernels: the registers of a thread, bytes of stack and bytes of spills of each kernel. code_bytes: bytes of
    machine code."""

    kernels: dict[str, list[int]]
    code_bytes: int


@cache
def _version(ptxas: Path) -> str:
    return subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=True).stdout


def digest(ptxas: Path, ptx: Path, chip: str) -> str:
    """A digest of everything on which the figures depend."""
    return hashlib.sha256(f"{_version(ptxas)} {chip} ".encode() + ptx.read_bytes()).hexdigest()


def assembled_now(ptxas: Path, chip: str, names: Collection[str] | None = None) -> Assembled:
    """The assembler's report when it runs. names: the kernels that it assembles; None: all."""
    ptx = build.compile_ptx(CHIPS[chip])
    with tempfile.TemporaryDirectory() as folder:
        if names is not None:
            head, *entries = re.split(r"(?=^\.visible \.entry ts_kernel_)", ptx.read_text(), flags=re.MULTILINE)
            chosen = [text for text in entries if re.split(r"ts_kernel_|\(", text, maxsplit=2)[1] in names]
            ptx = Path(folder) / "kernels.ptx"
            ptx.write_text("".join([head, *chosen]))
        code = Path(folder) / "kernels.cubin"
        command = [str(ptxas), "-v", f"-arch={chip}", str(ptx), "-o", str(code)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        code_bytes = code.stat().st_size
    parts = re.split(r"Function properties for ts_kernel_(\w+)", said)
    found = {}
    for name, words in zip(parts[1::2], parts[2::2], strict=True):
        numbers = [re.search(form, words) for form in FIGURES]
        found[name] = [int(number[1]) if number else -1 for number in numbers]
    return Assembled(found, code_bytes)


def assembled(ptxas: Path, chip: str) -> Assembled:
    """The figures of the PTX that is shipped for a chip, as its driver would compile it."""
    ptx = build.compile_ptx(CHIPS[chip])
    before = json.loads(KEPT.read_text())[chip] if KEPT.is_file() else {}
    if before.get("digest") == digest(ptxas, ptx, chip):
        return Assembled(before["kernels"], before["code_bytes"])
    return assembled_now(ptxas, chip)


def main() -> None:
    """Writes the file."""
    ptxas = build.assembler()
    assert ptxas is not None, "pip install nvidia-cuda-nvcc==13.0.88 brings the assembler"
    entries = []
    for chip, source in CHIPS.items():
        of_inputs = digest(ptxas, build.compile_ptx(source), chip)
        found = assembled(ptxas, chip)
        rows = ",\n".join(f"  {json.dumps(name)}: {numbers}" for name, numbers in sorted(found.kernels.items()))
        facts = f'"digest": "{of_inputs}", "code_bytes": {found.code_bytes}'
        entries.append(f'"{chip}": {{{facts}, "kernels": {{\n{rows}}}}}')
    KEPT.write_text("{" + ",\n".join(entries) + "}\n")


if __name__ == "__main__":
    main()
