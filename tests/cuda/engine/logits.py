"""Logits of the tiny checkpoints on the emulated device, for the steps whose bits tests/bits/digests.json records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.bench.random_checkpoint import write_random
from tests.bits import digests
from tests.cuda.emulator.fake import device
from tests.models.families.stored import config_of
from tests.runner.memories import write_rows
from twostroke.backends.cpu.packer import NativePacker
from twostroke.backends.cuda.device import CudaDevice
from twostroke.models.common.registry import read_model
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.place_weights import placed
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights


def logits(model: Model, weights: ModelWeights, kv: KVKind, on: CudaDevice) -> np.ndarray:
    """The logits of all rows of the steps in digests.CHUNKS."""
    there = placed(weights, on)
    memory = StepMemory(model.program, there.matrices, there.vectors, kv, digests.SIZES, on)
    forward = on.compile(model.program, memory)
    ids = [(31 * place + 7) % model.vocab_size for place in range(sum(digests.CHUNKS))]
    pages, rows, start = np.array([5, 2, 7, 1, 0, 3, 6, 4], np.int32), [], 0
    for count in (sum(digests.CHUNKS),) if model.whole_prompts else digests.CHUNKS:
        rows.append(forward(write_rows(memory, ids[start : start + count], start, pages)).copy())
        start += count
    return np.concatenate(rows)


def family_digests(family: str, pairs: list[tuple[str, KVKind]], seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Pairs (case, digest of its logits) of one family. Its checkpoint is written to `folder`."""
    config = config_of(family)
    write_random(config, folder)
    model, packer = read_model(config), NativePacker(None, 1)
    for name in dict.fromkeys(weights for weights, _ in pairs):
        with Checkpoint.open(folder) as checkpoint:
            weights = load_weights(checkpoint, model, format_choice(name), packer)
        for kv in (kv for weights_name, kv in pairs if weights_name == name):
            on = device(seed)
            found = hashlib.sha256(logits(model, weights, kv, on).tobytes()).hexdigest()[: digests.HEX_DIGITS]
            on.close()
            yield digests.name_of(family, name, kv), found
    packer.close()
