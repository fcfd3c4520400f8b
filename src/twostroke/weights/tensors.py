"""Compares the tensors that a program reads with the tensors that a checkpoint holds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Tensor
from twostroke.types.errors import CorruptModel
from twostroke.weights.absent import with_zeros
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.copies import require_same
from twostroke.weights.stacks import facing, unstacked
from twostroke.weights.tensor_source import ORDER

HARMLESS = re.compile(r"(.*\.)?(rotary_emb\.(inv_freq|cos_cached|sin_cached)|attn\.(masked_)?bias)")
"""Buffers in old checkpoints that are computed again and not read."""


def wanted_tensors(model: Model) -> Iterator[Tensor]:
    """Yields all tensors that are read from a checkpoint, in the order of use."""
    for weight in model.program.weights:
        yield from weight.parts
        yield from weight.bias
    for vector in model.program.vectors:
        yield from vector.parts


def with_prefix(checkpoint: Checkpoint, model: Model) -> Checkpoint:
    """Returns the checkpoint with each tensor under the name that the program reads. Stacks of experts are divided or
    transposed where the program needs that. Zeros take the place of absent tensors that the model allows to be absent.
    """
    names = program_names(checkpoint.names, model)
    checkpoint = checkpoint.renamed(names) if names else checkpoint
    if model.zeros:
        wanted = ((tensor.name, tensor.shape) for tensor in wanted_tensors(model))
        tensors = with_zeros(checkpoint.tensors, wanted, model.zeros)
        checkpoint = Checkpoint(checkpoint.folder, checkpoint.shards, tensors)
    if model.stacks:
        return Checkpoint(checkpoint.folder, checkpoint.shards, unstacked(checkpoint.tensors, model.stacks))
    stacks = {tensor.name: tensor.shape for tensor in wanted_tensors(model) if tensor.matrix is not None}
    if not stacks:
        return checkpoint
    return Checkpoint(checkpoint.folder, checkpoint.shards, facing(checkpoint.tensors, stacks))


def program_names(stored: frozenset[str], model: Model) -> dict[str, str]:
    """Returns stored name -> name in the program, for tensors that a checkpoint stores under other names. A stored name
    may have one of the beginnings in `model.stored_prefixes`, each of which stands for another. Or all stored names may
    lack `model.optional_prefix`."""
    found = {}
    for name in stored:
        for begin, usual in model.stored_prefixes:
            if name.startswith(begin):
                found[name] = usual + name.removeprefix(begin)
                break
    prefix = model.optional_prefix
    if not prefix or any(name.startswith(prefix) for name in stored):
        return found
    wanted = {tensor.name for tensor in wanted_tensors(model)}
    return found | {name: prefix + name for name in stored if prefix + name in wanted}


def is_ignored(name: str, model: Model) -> bool:
    """Returns whether a tensor may be in the checkpoint without being read. An entry of `ignored` that ends with a dot
    is the beginning of names."""
    if HARMLESS.fullmatch(name) or name in model.ignored or name.endswith(ORDER):
        return True
    return any(entry.endswith(".") and name.startswith(entry) for entry in model.ignored)


def check_tensors(checkpoint: Checkpoint, model: Model) -> Checkpoint:
    """Compares names and shapes in the checkpoint with the program's. Raises CorruptModel that names a tensor.

    Returns the checkpoint under the program's names, in the form in which it is to be read.
    """
    checkpoint = with_prefix(checkpoint, model)
    wanted = {tensor.name: tensor for tensor in wanted_tensors(model)}
    present = checkpoint.names
    missing = [name for name in wanted if name not in present]
    if missing:
        raise _missing(missing, len(wanted), model)
    for tensor in wanted.values():
        found = checkpoint.info(tensor.name).shape
        if found != tensor.shape:
            raise CorruptModel(
                f"Tensor {tensor.name} has the shape {list(found)}, expected {list(tensor.shape)}.",
                why="The expected shape follows from config.json.",
                fix="config.json and the weights belong to different models or revisions: download both again.",
            )
    require_same(checkpoint, model.copies, model.architecture)
    unexpected = sorted(name for name in present - wanted.keys() if not is_ignored(name, model))
    if unexpected and not model.part:  # with several ranks, the other ranks read those tensors
        raise CorruptModel(
            f"The checkpoint holds {len(unexpected)} tensors that a {model.architecture} with this config.json"
            f" does not have: {', '.join(name[:80] for name in unexpected[:3])}.",
            why="Leaving weights out would change what the model says.",
            fix="Check attention_bias, mlp_bias, num_hidden_layers in config.json; merge adapters first.",
        )
    return checkpoint


def _missing(missing: list[str], wanted: int, model: Model) -> CorruptModel:
    fix = "Download the model again; if that does not help, config.json does not belong to these weights."
    if missing == ["lm_head.weight"]:
        fix = "If the head is the embedding in this model, config.json must say tie_word_embeddings: true."
    return CorruptModel(
        f"The checkpoint lacks the tensor {missing[0]}.",
        why=f"{len(missing)} of the {wanted} tensors of a {model.architecture} with this config.json are not there.",
        fix=fix,
    )
