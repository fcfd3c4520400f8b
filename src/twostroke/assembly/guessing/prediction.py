"""Finds the MTP layers of a model's own checkpoint: layers that predict further tokens."""

from __future__ import annotations

from pathlib import Path

from twostroke.assembly.guessing.ahead import AheadModel, embedding_and_norm, models_of
from twostroke.assembly.guessing.heads_files import check_sizes, errors_of
from twostroke.models.common.prediction import prediction_program, read_prediction
from twostroke.ops.program.model import Model
from twostroke.types.errors import ConfigError
from twostroke.types.spec.fields import Fields
from twostroke.types.speculate import MTP
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.json_file import read_object
from twostroke.weights.stored import stored_formats
from twostroke.weights.tensors import with_prefix

OPTION = f"--speculate {MTP}"
OTHERS = ("model.", "lm_head.", "mtp.")
"""The prefixes of tensor names that may stay unread when one MTP layer is loaded, because most of these tensors belong
to the model and to other MTP layers. The layer's program names the tensors that are read."""


def find_prediction(folder: Path, spec: Model) -> AheadModel:
    """Finds the layers of this checkpoint that predict further tokens. Raises ConfigError where it has none, or names
    the tensor that is missing."""
    with errors_of(OPTION):
        predictions = read_prediction(Fields(read_object(folder / "config.json"), "config.json"))
        if not predictions:
            raise ConfigError(
                f"{OPTION} is not possible: {spec.architecture} has no layer that predicts a further token.",
                why="It needs a checkpoint with such a layer (DeepSeek-V3, GLM-4.5, Qwen3-Next and those like them).",
                fix="Use --speculate auto.",
            )
        embedding, norm, hidden = embedding_and_norm(spec, OPTION)
        layers = []
        with Checkpoint.open(folder) as checkpoint:
            stored = stored_formats(with_prefix(checkpoint, spec))
            for each in predictions:
                made = prediction_program(each, spec.hidden_size, embedding, hidden.matrix, stored)
                ignored = (*spec.ignored, *OTHERS)
                layer = models_of(made, spec, "layer that predicts a token", ignored, spec.stored_prefixes)
                check_sizes(with_prefix(checkpoint, layer.own), layer.own, OPTION, spec)
                layers.append(layer)
    if len(layers) > 1 and any(any(layer.spec.windows) for layer in layers):
        raise ConfigError(
            f"{OPTION} is not possible with several layers that see windows.",
            why="A further layer reads positions again whose pages the window has passed.",
            fix="Use --speculate auto.",
        )
    return AheadModel(MTP, folder, None, tuple(layers), (hidden.body,), norm)
