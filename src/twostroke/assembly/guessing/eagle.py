"""Finds an EAGLE layer: a draft layer that guesses tokens from the model's hidden states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from twostroke.assembly.guessing.ahead import AheadModel, embedding_and_norm, models_of
from twostroke.assembly.guessing.heads_files import check_sizes, errors_of, open_heads
from twostroke.assembly.weights import NOT_PACKED
from twostroke.models.common.blocks.heads import eagle3
from twostroke.models.common.blocks.heads.eagle import LAYER, eagle_program
from twostroke.ops.products.take_columns import TakeColumns
from twostroke.ops.program.hidden import with_layer_inputs
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Vector
from twostroke.types.errors import ConfigError, TwostrokeError
from twostroke.types.spec.fields import Fields
from twostroke.types.speculate import EAGLE
from twostroke.weights.checkpoint import SINGLE_NAME, Checkpoint, SafetensorsTensor
from twostroke.weights.json_file import read_object

IGNORED = ("embed_tokens.weight", "lm_head.weight", f"{LAYER}input_layernorm.weight")
NAME = "layer of EAGLE"
THIRD_IGNORED = ("embed_tokens.weight", "d2t", "t2d")


def find_eagle(folder: Path, spec: Model) -> AheadModel:
    """Finds the EAGLE layer for this model. Raises ConfigError that names the field or the tensor that does not fit."""
    option = f"--speculate {EAGLE}:{folder}"
    if is_eagle3(folder):
        return _find_eagle3(folder, spec, option)
    embedding, norm, hidden = embedding_and_norm(spec, option)
    with errors_of(option):
        made = eagle_program(_fields(folder), spec.hidden_size, spec.longest_context, embedding, hidden.matrix)
        layer = models_of(made, spec, NAME, IGNORED)
        with open_heads(folder, SINGLE_NAME, option) as checkpoint:
            check_sizes(checkpoint, layer.own, option, spec)
    return AheadModel(EAGLE, folder, SINGLE_NAME, (layer,), (hidden.body,), norm)


def is_eagle3(folder: Path) -> bool:
    """Returns whether the folder has an EAGLE-3 layer. Also returns False if its files cannot be read; loading them
    later raises the error."""
    try:
        with open_heads(folder, SINGLE_NAME, str(folder)) as checkpoint:
            return any(name.startswith(eagle3.LAYER) for name in checkpoint.names)
    except TwostrokeError:
        return False


def with_places_kept(spec: Model, folder: Path) -> Model:
    """Returns the model with a program that keeps the hidden states of an EAGLE-3 layer, so that they can be read after
    a step. Raises ConfigError."""
    option = f"--speculate {EAGLE}:{folder}"
    order = Vector(
        f"eagle.places{NOT_PACKED}", spec.hidden_size, (), numbers=tuple(map(float, range(spec.hidden_size)))
    )
    try:
        with errors_of(option):
            places = eagle3.eagle3_places(_fields(folder), spec.num_layers)
            program = with_layer_inputs(spec.program, places, lambda value: TakeColumns(value.fresh(), value, order))
    except ValueError as error:
        raise ConfigError(
            f"{option} is not possible with this model.", why=f"{error}.", fix="Use --speculate auto."
        ) from None
    return replace(spec, program=program)


def _find_eagle3(folder: Path, spec: Model, option: str) -> AheadModel:
    """Finds the EAGLE-3 draft layer in a folder. spec: the target model, whose program keeps the hidden states that the
    layer reads. option: the option that named the folder, for errors."""
    embedding, _, _ = embedding_and_norm(spec, option)
    with errors_of(option):
        found = eagle3.eagle3_program(_fields(folder), spec.hidden_size, spec.longest_context, embedding)
        layer = models_of(found.made, spec, "layer of EAGLE-3", THIRD_IGNORED)
        program = layer.own.program
        own = replace(layer.own, program=replace(program, weights=(*program.weights, found.joined)))
        with open_heads(folder, SINGLE_NAME, option) as checkpoint:
            check_sizes(checkpoint, own, option, spec)
            tokens = _tokens(checkpoint, found.vocabulary, spec.vocab_size, option)
    read = spec.program.kept[-eagle3.PLACES :]
    return AheadModel(EAGLE, folder, SINGLE_NAME, (layer._replace(own=own),), read, found.enter, tokens)


def _fields(folder: Path) -> Fields:
    return Fields(read_object(folder / "config.json"), "config.json")


def _tokens(checkpoint: Checkpoint, count: int, vocab_size: int, option: str) -> tuple[int, ...]:
    """Returns the model's token id for each token of the layer's head; empty where both have the same ids. The tensor
    d2t holds the differences of the ids."""
    if "d2t" not in checkpoint.names and count == vocab_size:
        return ()
    source = checkpoint.tensors.get("d2t")
    if not isinstance(source, SafetensorsTensor) or source.info.dtype != "I64" or source.info.shape != (count,):
        raise ConfigError(
            f"{option}: the tensor d2t must hold {count:,} whole numbers (I64).",
            why=f"The layer's head has {count:,} of the model's {vocab_size:,} tokens; d2t says which.",
            fix="Use a layer that was published with its d2t.",
        )
    tokens = source.read_raw(0, count).view("<i8").reshape(-1) + np.arange(count)
    if tokens.min() < 0 or tokens.max() >= vocab_size or len(np.unique(tokens)) != count:
        raise ConfigError(
            f"{option}: the tensor d2t names tokens that the model does not have, or names one twice.",
            why=f"Token i of the layer is token i + d2t[i] of the model's {vocab_size:,}.",
            fix="Use a layer that was trained for this model.",
        )
    return tuple(map(int, tokens))
