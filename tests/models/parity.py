"""The parity of a tiny checkpoint with transformers. Tests check it, and tools/errors/measure_parity.py records it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.models.families.stored import TOKENS, Judged
from tests.runner.memories import memory_of, write_rows
from twostroke.backends.cpu import CpuOps, available_levels
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes
from twostroke.runner.folder import load_folder
from twostroke.runner.forward import Forward, OpByOp
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import F32, KVKind

BAR = 1e-4
"""The largest error that tests allow, as a share of the logit range. The promise is 1e-3, and tests allow a tenth of
it."""
TIE = 2e-5
"""A share of the logit range. An error of 1e-5 may swap two logits that lie nearer than this. So a greedy token is
compared with the judge's only where its two largest logits lie further apart."""
PHASES = {"prefill": [TOKENS], "chunked": [1, 16, 7, 33, 18], "decode": [40, *([1] * (TOKENS - 40))]}
"""Name -> the tokens of each step."""
WHOLE = "prefill"
"""The only phase of encoders, whose positions see later ones."""


class Loaded:
    """A folder's model on one backend: compiled natively, or the reference op by op. Each run gets fresh memory."""

    def __init__(self, folder: Path, ops: CpuOps | ReferenceOps, context: int = 256) -> None:
        self.sizes = MemorySizes(16, context, max(80, context), max(80, context), state_slots=2)
        self.model, self.weights = load_folder(folder, F32)
        self.ops = ops

    def run(self, token_ids: list[int], chunks: list[int]) -> np.ndarray:
        """The logits (T, V) of all positions, computed in chunks of the given sizes over scattered pages."""
        pages = np.random.default_rng(3).permutation(16).astype(np.int32)[: self.sizes.max_pages]
        plain = isinstance(self.ops, ReferenceOps)
        program = self.model.plain if plain else self.model.program
        memory = memory_of(self.model, self.weights, KVKind.F32, self.sizes, program)
        forward: Forward = OpByOp(program, self.ops, memory) if plain else self.ops.compile(program, memory)
        rows, start = [], 0
        for count in chunks:
            rows.append(forward(write_rows(memory, token_ids[start : start + count], start, pages)).copy())
            start += count
        return np.concatenate(rows)


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a share of the range of the expected logits."""
    return float(np.abs(found - expected).max() / (expected.max() - expected.min()))


def other_tokens(found: np.ndarray, expected: np.ndarray) -> int:
    """The number of rows whose largest logit differs from the judge's, without ties."""
    largest = np.sort(expected, axis=1)[:, -2:]
    clear = largest[:, 1] - largest[:, 0] > TIE * (expected.max() - expected.min())
    return int(np.sum((found.argmax(axis=1) != expected.argmax(axis=1)) & clear))


def compared(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The rows that are compared. For a classifier this is the first row alone, because the judge computes no other."""
    return found[0] if expected.ndim == 1 else found


@dataclass(frozen=True, slots=True)
class Parity:
    """errors: the relative error of each phase at each native level, and of the reference. tokens: for the same phases,
    how many greedy tokens differ from the judge's; empty for models that generate nothing."""

    errors: dict[str, float]
    tokens: dict[str, int]


def parity_of(judged: Judged, folder: Path) -> Parity:
    """Measures the parity. folder: the place of the judge's checkpoint."""
    token_ids, expected = judged.token_ids, judged.logits
    parity = Parity({}, {})

    def measure(place: str, model: Loaded, chunks: list[int]) -> None:
        found = compared(model.run(token_ids, chunks), expected)
        parity.errors[place] = relative_error(found, expected)
        if model.model.task is Task.GENERATE:
            parity.tokens[place] = other_tokens(found, expected)

    for level in available_levels():
        ops = CpuOps(level, 2)
        model = Loaded(folder, ops)
        for phase, chunks in PHASES.items():
            if phase == WHOLE or not model.model.whole_prompts:
                measure(f"{level} {phase}", model, chunks)
        ops.close()
    measure(f"reference {WHOLE}", Loaded(folder, ReferenceOps()), PHASES[WHOLE])
    return parity
