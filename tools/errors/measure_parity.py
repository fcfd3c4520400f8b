"""Measures how far the logits of tiny checkpoints are from those of transformers, and writes docs/parity.json.

There is one row for each family of tests/models/families/. Its error is the worst share of the logit range: over
prefill, chunks and every decode step at each native level of this machine. The prefill of the reference counts, too.
The computation is the one that tests/models/test_parity.py tests. tools/generate_docs.py makes docs/models.md from the
rows. Rows of families that no longer exist are dropped.

    python -m tools.errors.measure_parity [FAMILY ...]     all families, or those named
    python -m tools.errors.measure_parity --missing        those without a row
"""

from __future__ import annotations

import argparse
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.models.families.stored import FAMILIES, ask, by_architecture
from tests.models.parity import parity_of

from twostroke.backends.cpu import available_levels

FILE = Path(__file__).resolve().parents[2] / "docs" / "parity.json"


def record_of(family: str, architecture: str) -> dict[str, Any]:
    """Measures one family. Returns its row of the file."""
    with tempfile.TemporaryDirectory() as folder:
        errors = parity_of(ask(family, Path(folder)), Path(folder)).errors
    where = max(errors, key=lambda place: errors[place])
    return {
        "architecture": architecture,
        "date": datetime.now(UTC).date().isoformat(),
        "error": float(f"{errors[where]:.1e}"),
        "levels": list(available_levels()),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "worst_at": where,
    }


def run() -> None:
    """Measure the families, and write the file after each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="default: all")
    parser.add_argument("--missing", action="store_true", help="only families without a row")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.families) - set(FAMILIES))
    if unknown:
        parser.error(f"tests/models/families/whole.py has no {', '.join(unknown)}")
    read = json.loads(FILE.read_text()) if FILE.exists() else {}
    records = {family: record for family, record in read.items() if family in FAMILIES}
    architectures = {family: name for name, families in by_architecture().items() for family in families}
    for family in arguments.families or FAMILIES:
        if not (arguments.missing and family in records):
            records[family] = record_of(family, architectures[family])
            print(f"{family:32} {records[family]['error']:.1e} {records[family]['worst_at']}", flush=True)
        FILE.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    run()
