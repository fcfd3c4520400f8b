"""Adapters made by PEFT on tiny checkpoints, and runs of them here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.runner.memories import write_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.passes.with_adapters import AdapterSpec, linear_tensors, with_adapters
from twostroke.ops.program.fuse import fuse
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.adapters.bank import AdapterBank
from twostroke.runner.adapters.lora_folder import LoraFolder
from twostroke.runner.folder import load_folder
from twostroke.types.spec.formats import F32, KVKind, WeightFormat

SIZES = MemorySizes(16, 256, 80, 80, state_slots=2)


def write_lora(judge: Any, folder: Path, seed: int = 1, **config: Any) -> Any:
    """Adds an adapter of random numbers to a transformers model and saves it. Returns the PEFT model."""
    import peft
    import torch

    torch.manual_seed(seed)
    made = peft.get_peft_model(judge, peft.LoraConfig(**{"r": 4, "lora_alpha": 8, **config}))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if ".lora_" in name:
                parameter.normal_(0.0, 0.3)
    made.save_pretrained(folder, save_embedding_layers=False)
    return made


class Adapted:
    """A checkpoint with adapters in their slots, computed by the native ops."""

    def __init__(
        self, folder: Path, adapters: Sequence[Path], ops: CpuOps, rank: int = 8, factors: WeightFormat = F32
    ) -> None:
        """factors: the format of the adapters' matrices."""
        self.model, weights = load_folder(folder, F32)
        spec = AdapterSpec(len(adapters), dict.fromkeys(linear_tensors(self.model.plain), rank))
        made = with_adapters(self.model.plain, spec)
        self.bank = AdapterBank(made.parts, factors)
        for slot, path in enumerate(adapters):
            with LoraFolder.open(path, self.model) as opened:
                self.bank.fill(slot, opened)
        program = fuse(made.program, PATTERNS)
        matrices, vectors = {**weights.matrices, **self.bank.matrices}, {**weights.vectors, **self.bank.vectors}
        self.memory = StepMemory(program, matrices, vectors, KVKind.F32, SIZES)
        self.forward = ops.compile(program, self.memory)

    def run(self, token_ids: list[int], chunks: Sequence[int], slot: int) -> F32Array:
        """The logits (T, V) of all positions, with the adapter of a slot, or without one for slot -1."""
        pages = np.random.default_rng(3).permutation(16).astype(np.int32)
        rows, start = [], 0
        for count in chunks:
            sizes = write_rows(self.memory, token_ids[start : start + count], start, pages)
            self.memory.adapters[:count] = slot
            self.memory.choose_logit_rows(range(count))
            rows.append(self.forward(sizes).copy())
            start += count
        return np.concatenate(rows)
