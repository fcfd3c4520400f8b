"""The model that engines are compared on: random weights of a shape, a published checkpoint's folder, or a GGUF file as
it is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twostroke.assembly.settings.names import meant
from twostroke.lab.bench.checkpoints import shape_folder, write_checkpoint
from twostroke.lab.bench.random_tensors import Progress
from twostroke.ops.quant.formats import INTEGER_WEIGHTS
from twostroke.quantize.driver.calibrate import no_progress
from twostroke.quantize.gguf.write import GgufMix, write_folder
from twostroke.runner.folder import read_folder
from twostroke.types.errors import ConfigError, TwostrokeError
from twostroke.weights.gguf.file_names import quant_of
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.hub.hub import resolve_model

EXACT = {"bfloat16": GgufMix("BF16", 32, "BF16", "BF16")}
"""For the dtype of a checkpoint, the GGUF types that keep its weights exactly. Weights of other dtypes are written in
float32 (ANY_EXACT)."""
ANY_EXACT = GgufMix("F32", 0, "F32", "F32")


@dataclass(frozen=True, slots=True)
class Subject:
    """The model of a comparison. model: the folder or file that engines get. folder: the folder with config.json and
    the tokenizer. weights: the formats to compare. is_published: whether the weights were trained; random weights
    cannot be compared on natural texts."""

    model: Path
    folder: Path
    weights: tuple[str, ...]
    is_published: bool

    @property
    def is_file(self) -> bool:
        """Whether the model is a GGUF file, which engines read as it is."""
        return self.model != self.folder

    @property
    def name(self) -> str:
        """The model's name for the head of the report."""
        return self.model.name

    @property
    def has_texts(self) -> bool:
        """Whether the model can be compared with float32 on texts."""
        return self.is_published and (self.folder / "tokenizer.json").is_file()


def find_subject(
    model: Path | None, shape: str, weights: Sequence[str], cache: Path, progress: Progress | None
) -> Subject:
    """Finds the model of a comparison. model: a folder or a file; None for random weights of `shape`, which are written
    into `cache`. weights: the formats that were asked for; empty for the usual ones. Raises ConfigError, ModelError."""
    usual = tuple(weights) or INTEGER_WEIGHTS
    if model is None:
        folder = write_checkpoint(shape, shape_folder(shape, cache), progress).resolve()
        return Subject(folder, folder, usual, is_published=False)
    found = resolve_model(meant(str(model)), offline=True).path.resolve()
    if not found.is_file():
        return Subject(found, found, usual, is_published=True)
    if weights:
        raise ConfigError(
            f"--weights {','.join(weights)} was given for the file {found.name}.",
            why="All engines read a GGUF file as it is.",
            fix="Leave --weights out, or name a folder.",
        )
    return Subject(found, unfold(found, cache), (quant_of(found.name),), is_published=True)


def write_exact_file(subject: Subject) -> str | None:
    """Writes the folder's weights as a GGUF file next to it, for engines that read no folders. Returns the reason where
    no file can be written, else None."""
    target = Path(f"{subject.model}-exact.gguf")
    if target.exists():
        return None
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{subject.name}-exact-") as place:
            mix = EXACT.get(read_folder(subject.folder).dtype, ANY_EXACT)
            os.replace(write_folder(subject.model, Path(place) / "made", mix, "exact", no_progress), target)
    except (TwostrokeError, OSError) as error:
        return str(error)
    return None
