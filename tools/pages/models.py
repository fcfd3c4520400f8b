"""Makes docs/models.md: every architecture with its record of parity, and published models with their sizes. README.md
has the number of these architectures."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twostroke.models.common.encoders import ENCODERS
from twostroke.models.common.registry import Architecture, architectures, read_model
from twostroke.types.spec.formats import KVKind
from twostroke.weights.gguf.families.table import FAMILIES, READ_AS
from twostroke.weights.gguf.projector import KINDS

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "parity.json"
PUBLISHED = ROOT / "tests" / "models" / "published"
"""The folder of the files whose PUBLISHED lists published models: (config, parameters, ...) for each."""

PARITY = """# Models

Every architecture that Twostroke runs. Three were loaded from published checkpoints, all others from random ones
([published weights](guides/real-weights.md)). Each is tested
with tiny random checkpoints (`tests/models/families/`), which transformers makes. It has no Grok-1, no RWKV-6, no
RWKV-7, no NeoBERT and no Nomic v2 with experts. These are compared with references of our own after the published code
and the papers (`tests/models/grok1.py`, `tests/models/families/rwkv.py`, `rwkv6.py`, `published_encoders.py`).

## Parity

The error is the greatest difference between our logits and those of transformers, as a share of the range of the
logits. Weights, K and V are float32. It is the worst of all tiny checkpoints of the architecture. Prefill, prefill in
chunks and every decode step count at each native level, and so does the prefill of the NumPy reference. Of an encoder
it is that of the last layer's rows, or of a classifier's scores, over whole texts. The promise is 1e-3;
`tests/models/test_parity.py` holds 1e-4. The records are in `docs/parity.json`; `python -m tools.errors.measure_parity`
writes them. An architecture without a record cannot be on this page.
"""

SEEING = """## Models that read images

Whole models are tested with one, two and three images, text before, between and after them, in chunks and over the
answer. The error is below 1e-4 of the range of log probabilities (`tests/vision/test_families.py`, `test_smolvlm.py`).
Towers alone are within 1e-4 of the range of rows at every native level, and pixels are equal to those of
transformers' PIL processors (`tests/vision/test_towers.py`, `test_pixels.py`). All of it is tested with tiny random
checkpoints. Other models that see are read as language models.
"""

SIZES = """## Published models

What follows from a model's config.json alone, next to the parameters that its page or its files name. The fields of
config.json and these parameters are typed by hand into `tests/models/published*.py`: **they were not read from the
published files.** K and V are in bfloat16. States are what a sequence keeps whatever its length.
"""


def models_page(records: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Returns the page with both tables. Raises SystemExit for an architecture that has no record."""
    if records is None:
        records = json.loads(RECORDS.read_text())
    levels = Counter(level for record in records.values() for level in record["levels"])
    counts = ", ".join(f"{level} ({count})" for level, count in sorted(levels.items()))
    lines = [PARITY, f"{len(records)} checkpoints; native levels, with the checkpoints measured at each: {counts}.\n"]
    lines += ["| in config.json | model file | in GGUF | tiny checkpoints | error | transformers | measured |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    lines += [_parity_row(entry, records) for entry in {each.name: each for each in architectures().values()}.values()]
    lines += ["", SEEING, "| model_type | encoder | in GGUF (mmproj) |", "| --- | --- | --- |", *_seeing_rows()]
    lines += ["", SIZES]
    lines += [
        "| model | published parameters | ours | difference | used for a token | KV bytes of a token | state bytes |"
    ]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: |", *_size_rows()]
    return "\n".join(lines) + "\n"


def with_count(readme: str) -> str:
    """Returns README.md with the number of architectures that the page lists. Raises SystemExit where the text has no
    such number."""
    text, places = re.subn(r"\[\d+ architectures\]", f"[{len(architectures())} architectures]", readme)
    if places != 1:
        raise SystemExit("README.md must have one link with the number of architectures: [277 architectures](...)")
    return text


def _parity_row(entry: Architecture, records: Mapping[str, Mapping[str, Any]]) -> str:
    own = {family: record for family, record in records.items() if record["architecture"] == entry.name}
    if not own:
        raise SystemExit(
            f"docs/parity.json has no record of {entry.name}. Run: python -m tools.errors.measure_parity --missing"
        )
    names = [name for name, each in architectures().items() if each.name == entry.name]
    file = entry.read.__module__.removeprefix("twostroke.").replace(".", "/") + ".py"
    cells = (
        ", ".join(f"`{name}`" for name in names),
        f"`{file}`",
        ", ".join(_gguf_names(names)),
        ", ".join(sorted(own)),
        f"{max(record['error'] for record in own.values()):.1e}",
        ", ".join(sorted({record["transformers"] for record in own.values()})),
        min(record["date"] for record in own.values()),
    )
    return f"| {' | '.join(cells)} |"


def _gguf_names(names: list[str]) -> Iterator[str]:
    """Yields the values of general.architecture that GGUF files have for these architectures."""
    for gguf, family in FAMILIES.items():
        if family.hf in names and gguf != "falcon-two-norms":
            name, what = READ_AS.get(gguf, (gguf, ""))
            yield f"`{name}`{what and ' '}{what}"


def _seeing_rows() -> Iterator[str]:
    """Yields one row for each file of an image encoder."""
    files: dict[str, list[str]] = {}
    for model_type, home in ENCODERS.items():
        file = home.read.__module__.removeprefix("twostroke.").replace(".", "/") + ".py"
        files.setdefault(file, []).append(model_type)
    of_file = {
        "qwen3_vl": ("qwen3vl_merger",),
        "qwen2_vl": ("qwen2vl_merger", "qwen2.5vl_merger"),
        **{"lfm2_vl": ("lfm2",), "gemma4": ("gemma4v",), "minicpm_v": ("minicpmv4_6",)},
        "kimi": ("kimik25", "kimivl"),
    }
    for file, types in sorted(files.items()):
        stem = Path(file).stem
        named = ", ".join(f"`{word}`" for word in of_file.get(stem, (stem,)) if word in KINDS)
        yield f"| {', '.join(f'`{each}`' for each in types)} | `{file}` | {named} |"


def _size_rows() -> Iterator[str]:
    for path in sorted(PUBLISHED.glob("[a-z]*.py")):
        facts = importlib.import_module(f"tests.models.published.{path.stem}").PUBLISHED
        for name, (config, said, *_) in facts.items():
            model = read_model(config)
            ours, kv_bytes = model.parameters(), model.kv_bytes_per_token(KVKind.BF16)
            # Pages of models say thousands of millions; files are counted to the last one.
            text, count = (f"{said:,}", said) if isinstance(said, int) else (f"{said:g} billion", said * 1e9)
            difference = round(100 * (ours / count - 1), 2) + 0.0  # never -0.0
            cells = (ours, model.program.active_parameters, kv_bytes, model.state_bytes())
            shown = [f"{cell:,}" for cell in cells]
            yield f"| {name} | {text} | {shown[0]} | {difference:.2f}% | {' | '.join(shown[1:])} |"
