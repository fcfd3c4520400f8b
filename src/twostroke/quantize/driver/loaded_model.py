"""Loads a folder's model in stages, with its matrices in the formats in which it would be served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.packer import NativePacker
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import FormatChoice
from twostroke.quantize.driver.stages import StagedModel, exact_formats
from twostroke.runner.folder import read_folder
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.tensors import check_tensors


@contextmanager
def staged_folder(
    folder: Path, threads: int, formats: FormatChoice = exact_formats, model: Model | None = None
) -> Iterator[StagedModel]:
    """Yields the stages with their open checkpoint. model: the folder's model, where it is known already. Raises
    ModelError."""
    with ExitStack() as closing:
        model = model or read_folder(folder)
        checkpoint = closing.enter_context(Checkpoint.open(folder))
        ops, packer = CpuOps(None, threads), NativePacker(None, threads)
        closing.callback(ops.close)
        closing.callback(packer.close)
        yield StagedModel(model, check_tensors(checkpoint, model), ops, packer, formats)
