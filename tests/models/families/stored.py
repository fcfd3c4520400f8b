"""The tiny checkpoints of each family, where no judge is asked.

The configs are stored in configs.json, under a digest of the sources of this folder (tests/judged.py). Checkpoints and
their logits are kept in the user's cache (tests/kept.py). Only where one of them is missing is tests/models/families/
whole.py imported, which takes seconds: it imports torch and transformers. After a change of a config or of a judge:

    .venv/bin/python -m pytest --write-judged tests/laws/test_judged.py
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests import judged, kept
from twostroke.models.common.registry import architecture_of, architectures
from twostroke.types.pooling import Task
from twostroke.types.spec.fields import Fields

HERE = Path(__file__).parent
FILE = HERE / "configs.json"
OWN = {"__init__.py", "covering.py", "stored.py"}
"""Files of this folder that decide no config and no checkpoint."""
SOURCES = (
    *(path for path in sorted(HERE.glob("*.py")) if path.name not in OWN),
    *(HERE.parents[1] / name for name in ("models/grok1.py", "weights/gguf/variants.py")),
)
TOKENS = 75
"""As many positions have the judge's logits."""
Config = dict[str, Any]


@cache
def facts() -> tuple[str, ...]:
    """All that decides configs and checkpoints, next to their names."""
    return (judged.digest_of(judged.code_of(path) for path in SOURCES),)


def _ask() -> dict[str, dict[str, Config]]:
    from tests.models.families.whole import FAMILIES as MAKERS
    from tests.weights.gguf.variants import VARIANTS as OTHERS

    return {
        "families": {family: make().to_dict() for family, make in MAKERS.items()},
        "variants": {family: make().to_dict() for family, make in OTHERS.items()},
    }


def _configs(name: str) -> dict[str, Config]:
    found: dict[str, Config] = judged.said(name, facts(), lambda: _ask()[name], file=FILE)
    return found


FAMILIES = _configs("families")
"""Family -> its tiny config.json. Tests that change one take `config_of`."""
VARIANTS = _configs("variants")
"""The same of configs of which a GGUF file can say everything (tests/weights/gguf/variants.py)."""


def config_of(family: str) -> Config:
    """A copy of the tiny config of a family or of a variant."""
    return copy.deepcopy(FAMILIES[family] if family in FAMILIES else VARIANTS[family])


@cache
def by_architecture() -> dict[str, tuple[str, ...]]:
    """Every architecture of the registry with its families. Raises ValueError for one that has none."""
    found: dict[str, tuple[str, ...]] = {entry.name: () for entry in architectures().values()}
    for family, config in FAMILIES.items():
        found[architecture_of(Fields(config, "config.json"))] += (family,)
    bare = [name for name, families in found.items() if not families]
    if bare:
        raise ValueError(f"tests/models/families/whole.py has no tiny config of {', '.join(bare)}")
    return found


def generating() -> dict[str, tuple[str, ...]]:
    """Those of `by_architecture` that generate text."""
    tasks = {entry.name: entry.form.task for entry in architectures().values()}
    return {name: families for name, families in by_architecture().items() if tasks[name] is Task.GENERATE}


@dataclass(frozen=True)
class Judged:
    """What transformers gives for a tiny checkpoint. token_ids: TOKENS token ids of a text. logits: float32 (T, V) for
    all positions; an encoder has hidden states (T, hidden), a classifier one row (V,). parameters: their number.
    shapes: the shape of each tensor that it writes.
    """

    token_ids: list[int]
    logits: np.ndarray
    parameters: int
    shapes: dict[str, tuple[int, ...]]


def ask(family: str, folder: Path) -> Judged:
    """What `judged_checkpoint` returns, from the judge itself, whatever is kept."""
    from tests.models.families import whole

    judge = whole.make_checkpoint(family, folder)
    token_ids = whole.some_tokens(judge, TOKENS)
    return Judged(token_ids, whole.logits(judge, token_ids), judge.num_parameters(), whole.stored_shapes(judge))


def _made(family: str) -> kept.Kept:
    def make(folder: Path) -> dict[str, Any]:
        if family not in FAMILIES:  # nobody asks for logits of a variant, and transformers computes none of some
            from tests.models.families import whole

            whole.make_checkpoint(family, folder)
            return {}
        found = ask(family, folder)
        said = {"token_ids": found.token_ids, "parameters": found.parameters, "shapes": found.shapes}
        return {"logits": found.logits, "said": kept.text(said)}

    return kept.made((family, config_of(family), *facts()), make)


def write_checkpoint(family: str, folder: Path) -> None:
    """Writes the random float32 checkpoint of `family`, as transformers saves it, into `folder`."""
    _made(family).unpack(folder)


def judged_checkpoint(family: str, folder: Path) -> Judged:
    """Writes the checkpoint of a family, not of a variant, into `folder`; returns what its judge gives for it."""
    found = _made(family)
    found.unpack(folder)
    arrays = found.answers()
    said = kept.value_of(arrays["said"])
    shapes = {name: tuple(shape) for name, shape in said["shapes"].items()}
    return Judged(said["token_ids"], arrays["logits"], said["parameters"], shapes)


def logits_of(folder: Path, token_ids: list[int]) -> np.ndarray:
    """transformers' logits (T, V) of the files of a folder, which it reads by AutoModelForCausalLM."""

    def ask() -> np.ndarray:
        import torch
        import transformers

        judge = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        with torch.no_grad():
            found: np.ndarray = judge(torch.tensor([token_ids])).logits[0].numpy()
        return found

    return kept.answer(("logits of a folder", token_ids, *kept.facts_of(folder)), ask)
