"""Reads the model of a folder: config.json, corrected by the tensors of the checkpoint. It also packs a folder's
weights, for tests and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twostroke.models.common.fields.nested import with_own_head
from twostroke.models.common.forms import Form
from twostroke.models.common.registry import read_model
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Weight
from twostroke.ops.quant.formats import KEPT_WIDE
from twostroke.types.errors import ModelError
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import F32, WeightFormat
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.unfold import NAME_FILE
from twostroke.weights.json_file import read_object
from twostroke.weights.load import Progress, load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packing.rounded_packing import Packer
from twostroke.weights.quantized.recipe import scheme_in
from twostroke.weights.stored import column_orders, stored_formats
from twostroke.weights.stored_dtype import stored_dtype
from twostroke.weights.tensors import with_prefix
from twostroke.weights.tied import HEAD, has_other_head

if TYPE_CHECKING:
    from twostroke.weights.packed import numpy_packer
else:
    numpy_packer = LazyModule("twostroke.weights.packed.numpy_packer")  # an engine has a packer of its own


def read_folder(folder: Path, kept: Path | None = None, asked: Form | None = None, apart: bool | None = None) -> Model:
    """Reads the model of a folder. Where tie_word_embeddings is true but the checkpoint holds an LM head that differs
    from the embeddings, that head is used.

    kept: the folder that stores, for each checkpoint, whether it holds such a head; None compares the tensors each
    time. asked: whether the model is served for logits, embeddings or scores; None for what it was made for. apart:
    whether each expert has a tensor of its own; None where the config decides it. Raises CorruptModel or
    UnsupportedModel where config.json is broken or not supported. Missing or broken weights are found only when they
    are loaded.
    """
    config = read_object(folder / "config.json")
    if (folder / NAME_FILE).is_file():
        with Checkpoint.open(folder) as checkpoint:
            return read_model(config, stored_formats(checkpoint), column_orders(checkpoint), asked)
    if scheme_in(folder) is not None:
        return _read_quantized(folder, config, kept, asked)
    model = read_model(config, apart=apart)
    if model.task is not Task.GENERATE:
        return with_stored_dtype(folder, read_model(config, asked=asked))
    if HEAD in model.ignored and _has_other_head(folder, model, kept):
        config = with_own_head(config)
    elif asked is None:
        return with_stored_dtype(folder, model)
    return with_stored_dtype(folder, read_model(config, asked=asked, apart=apart))


def read_headers(folder: Path) -> Model:
    """Reads the model as `read_folder` does, but from config.json and the headers of files alone. It does not compare
    an LM head of the checkpoint with the embeddings: a model whose config ties them is read as tied. Raises
    CorruptModel or UnsupportedModel."""
    config = read_object(folder / "config.json")
    if not (folder / NAME_FILE).is_file() and scheme_in(folder) is None:
        return with_stored_dtype(folder, read_model(config))
    with Checkpoint.open(folder) as checkpoint:
        named = checkpoint if checkpoint.is_gguf else with_prefix(checkpoint, read_model(config))
        return read_model(config, stored_formats(named), column_orders(named))


def with_stored_dtype(folder: Path, model: Model) -> Model:
    """Returns the model with the dtype that its matrices have in the checkpoint. config.json may name no dtype, or
    another one. Where the matrices cannot be read, the model is returned unchanged: loading them later raises the
    error."""
    try:
        with Checkpoint.open(folder) as checkpoint:
            return replace(model, dtype=stored_dtype(checkpoint, model.dtype))
    except ModelError:
        return model


def _has_other_head(folder: Path, model: Model, kept: Path | None) -> bool:
    """Returns whether the checkpoint holds an LM head that differs from the embeddings, although the config ties both.
    Returns False where the checkpoint cannot be read: loading it later raises the error."""
    try:
        with Checkpoint.open(folder) as checkpoint:
            return has_other_head(checkpoint, model, kept)
    except ModelError:
        return False


def _read_quantized(folder: Path, config: Mapping[str, Any], kept: Path | None, asked: Form | None) -> Model:
    """Reads a model whose checkpoint holds packed weights. The tensors decide the format of each weight, so the headers
    of the checkpoint are read. Raises ModelError where they are broken."""
    with Checkpoint.open(folder) as checkpoint:
        named = with_prefix(checkpoint, read_model(config))
        stored, orders = stored_formats(named), column_orders(named)
        model = read_model(config, stored, orders)
        if model.task is Task.GENERATE and HEAD in model.ignored and has_other_head(checkpoint, model, kept):
            config = with_own_head(config)
        return read_model(config, stored, orders, asked)


def load_folder(
    folder: Path, weight_format: WeightFormat, packer: Packer | None = None, progress: Progress | None = None
) -> tuple[Model, ModelWeights]:
    """Reads a model and packs every matrix in one format; matrices with a role in KEPT_WIDE are packed as float32.
    packer: None for the NumPy packer. Raises ModelError."""
    model = read_folder(folder)

    def format_for(weight: Weight) -> WeightFormat:
        return F32 if weight.role in KEPT_WIDE else weight_format

    with Checkpoint.open(folder) as checkpoint:
        return model, load_weights(checkpoint, model, format_for, packer or numpy_packer.NumpyPacker(), progress)
