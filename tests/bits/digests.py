"""Digests of the logits of tiny checkpoints. They must not change by accident.

A digest is the same on every machine of one level, because of its inputs. These are the configs of
tests/models/families/ and weights from PCG64's raw bits times one factor (lab/bench/random_tensors.py). Packing, rope
tables and every op are native code or exact arithmetic, without a C library's exp, sin or pow in float32. Two functions
of a C library are left, both in float64 and rounded to float32 once: 1 / sqrt(head size) as Python's power, and the
exponential of Mamba's decay. If their last bit differs, rounding removes the difference in all but one of some hundred
million numbers.

    python -m tests.bits.digests          prints which entries have changed
    python -m tests.bits.digests --write  also writes them to digests.json; commit the file with the reason

The entries of levels that this machine cannot run stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import by_architecture, config_of
from tests.runner.memories import memory_of, write_rows
from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.backends.cpu.packer import NativePacker
from twostroke.models.common.registry import read_model
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import FORMATS, format_choice
from twostroke.ops.step_memory import MemorySizes
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights

FILE = Path(__file__).parent / "digests.json"
SIZES = MemorySizes(8, 128, 64, 64, state_slots=2)
CHUNKS = (37, 1, 6, 1)
"""A prompt of more than two pages, then decode steps and a later chunk."""
PAIRS = [(weights, kv) for weights in FORMATS for kv in KVKind]
WHOLE = ("llama2-multi-head", "mixtral-experts", "gpt2")
"""The families that run in every pair of formats."""
HEX_DIGITS = 12

Digests = dict[str, dict[str, str]]
"""case -> level -> digest of its logits."""


def cases() -> dict[str, list[tuple[str, KVKind]]]:
    """The cases of a family: each format of weights with one of K and V. Some families have every pair.

    The format of K and V is chosen by the family's name alone, so that a new family does not change the cases of
    others.
    """
    kinds, found = list(KVKind), {}
    for family in (family for families in by_architecture().values() for family in families):
        first = zlib.crc32(family.encode())
        some = [(name, kinds[(first + place) % len(kinds)]) for place, name in enumerate(FORMATS)]
        found[family] = PAIRS if family in WHOLE else some
    return found


def name_of(family: str, weights: str, kv: KVKind) -> str:
    """The key of a case in the file."""
    return f"{family} {weights} kv-{kv.name.lower()}"


def family_digests(family: str, pairs: list[tuple[str, KVKind]], levels: tuple[str, ...], folder: Path) -> Digests:
    """The digests of one family. Its checkpoint is written to `folder`."""
    config = config_of(family)
    write_random(config, folder)
    model = read_model(config)
    found: Digests = {}
    for level in levels:
        ops, packer = CpuOps(level, 2), NativePacker(level, 1)
        for name in dict.fromkeys(weights for weights, _ in pairs):
            with Checkpoint.open(folder) as checkpoint:
                weights = load_weights(checkpoint, model, format_choice(name), packer)
            for kv in (kv for weights_name, kv in pairs if weights_name == name):
                logits = _logits(model, weights, kv, ops)
                digest = hashlib.sha256(logits.tobytes()).hexdigest()[:HEX_DIGITS]
                found.setdefault(name_of(family, name, kv), {})[level] = digest
        ops.close()
        packer.close()
    return found


def _logits(model: Model, weights: ModelWeights, kv: KVKind, ops: CpuOps) -> np.ndarray:
    memory = memory_of(model, weights, kv, SIZES)
    forward = ops.compile(model.program, memory)
    ids = [(31 * place + 7) % model.vocab_size for place in range(sum(CHUNKS))]
    pages, rows, start = np.array([5, 2, 7, 1, 0, 3, 6, 4], np.int32), [], 0
    for count in (sum(CHUNKS),) if model.whole_prompts else CHUNKS:
        rows.append(forward(write_rows(memory, ids[start : start + count], start, pages)).copy())
        start += count
    found = np.concatenate(rows)
    if not np.isfinite(found).all():
        raise ValueError("logits that are not finite have no digest")
    return found


def recorded() -> Digests:
    """The content of the file."""
    found: Digests = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return found


def changes(before: Digests, now: Digests) -> Iterator[str]:
    """One line for each entry that differs."""
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, {}), now.get(name, {})
        if not new:
            yield f"gone: {name}"
        elif not old:
            yield f"new: {name}"
        for level in sorted(old.keys() & new.keys()):
            if old[level] != new[level]:
                yield f"changed: {name} at level {level}: {old[level]} -> {new[level]}"
        for level in sorted(new.keys() - old.keys() if old else ()):
            yield f"new level: {name} at {level}"


def write(digests: Digests) -> None:
    """Writes one line for each case, in the order of their names."""
    lines = [f"  {json.dumps(name)}: {json.dumps(digests[name], sort_keys=True)}" for name in sorted(digests)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def levels_here() -> tuple[str, ...]:
    """The levels of this machine that get digests. avxvnni has the code of avx2 but for one product of whole numbers,
    so its digests would be the same."""
    return tuple(level for level in available_levels() if level != "avxvnni")


def main(arguments: list[str]) -> int:
    """Runs the command that the module describes."""
    if arguments not in ([], ["--write"]):
        print("usage: python -m tests.bits.digests [--write]", file=sys.stderr)
        return 2
    now: Digests = {}
    for family, pairs in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            now |= family_digests(family, pairs, levels_here(), Path(folder))
    before = recorded()
    said = list(changes(before, now))
    print("\n".join(said) or "nothing has changed")
    if arguments:
        write({name: {**before.get(name, {}), **found} for name, found in now.items()})
    return int(any(line.startswith("changed") for line in said) and not arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
