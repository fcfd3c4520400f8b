"""Writes the model of a folder as a GGUF file in one of llama.cpp's mixes.

There is no calibration: blocks are small, and their scales are searched. The work is one pass over the weights, and an
interrupted run starts from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twostroke.models.common.forms import EMBEDDINGS
from twostroke.ops.operands import F32Array
from twostroke.ops.program.model import Model
from twostroke.quantize.driver.tensor_file import require_room
from twostroke.quantize.gguf.blocks import TYPES, WrittenBlock
from twostroke.quantize.gguf.check import read_back, require_same
from twostroke.quantize.gguf.container import GgufTensorToWrite, KeyValue, write_gguf
from twostroke.quantize.gguf.keys import general_keys, model_keys, pooling_keys, rotation_divisors
from twostroke.quantize.gguf.names import FIX, StoredPlan, entries_to_write, plan_tensors
from twostroke.quantize.gguf.values import stored_values
from twostroke.quantize.gguf.vocabulary import vocabulary_keys
from twostroke.runner.folder import read_folder
from twostroke.runner.retrieval.sentence_files import read_sentence_files
from twostroke.types.errors import ConfigError, CorruptModel, UnsupportedModel
from twostroke.types.pooling import Pooling, Task
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.families.family import Config, Family, Shape
from twostroke.weights.json_file import read_object
from twostroke.weights.tensor_source import as_f32
from twostroke.weights.tensors import is_ignored, with_prefix
from twostroke.weights.tied import HEAD

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class GgufMix:
    """A mix of llama.cpp's types, such as Q4_K_M. file_type: its number in the file. usual: the type of most matrices.
    finer: the type of the head, and in Q4_K_M of some of the matrices that make V or end a feed-forward block."""

    name: str
    file_type: int
    usual: str
    finer: str


MIXES: Mapping[str, GgufMix] = {
    mix.name: mix
    for mix in (
        GgufMix("Q4_0", 2, "Q4_0", "Q6_K"),
        GgufMix("Q8_0", 7, "Q8_0", "Q8_0"),
        GgufMix("Q4_K_M", 15, "Q4_K", "Q6_K"),
        GgufMix("Q6_K", 18, "Q6_K", "Q6_K"),
    )
}
KEPT = (
    *("ssm_conv1d", "ssm_d", "shortconv.conv", "position_embd", "token_types", "cls"),
    *("altup_", "laurel_", "per_layer_model_proj"),
)
"""The beginnings of the names of tensors that are stored without rounding: they are small, and the reader takes them as
float32 numbers, not as packed matrices."""
SUFFIX = ".gguf"
OUTPUT = "output.weight"
"""The name of the head's tensor. In a file without it the embedding is the head."""
DECAY = "ssm_a"
"""The whole name of one more tensor that is stored without rounding. Longer names with this beginning, such as
ssm_alpha, belong to matrices, which are rounded as all others."""
NARROW: Mapping[str, str] = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
"""The types that llama.cpp uses in place of a type where rows are not whole blocks of 256."""


def write_folder(folder: Path, output: Path, mix: GgufMix, name: str, progress: Progress) -> Path:
    """Writes the GGUF file and returns its path. output: the file, where its name ends in .gguf; else a folder for the
    file, which is made. Raises ConfigError, ModelError."""
    config = read_object(folder / "config.json")
    path = _free_place(output, f"{name}-{mix.name}{SUFFIX}")
    with Checkpoint.open(folder) as stored:
        entries_to_write(config)
        sentence = read_sentence_files(folder)
        if sentence.dense:
            raise UnsupportedModel(
                "This model's Dense steps cannot be written into a GGUF file.",
                why="The file would give other vectors than the folder.",
                fix="Serve the folder.",
            )
        model = read_folder(folder)
        if model.task is Task.GENERATE and sentence.pooling is not None:
            model = read_folder(folder, None, EMBEDDINGS)
        if config.get("tie_word_embeddings") and HEAD not in model.ignored:
            config = {**config, "tie_word_embeddings": False}  # the checkpoint holds a separate head
        checkpoint = with_prefix(stored, model)
        vocabulary = vocabulary_keys(folder, config, model.vocab_size)
        shapes = {name: checkpoint.info(name).shape for name in checkpoint.names}
        read = _reader(checkpoint)
        described = describe(config, model, shapes, read, vocabulary, sentence.pooling, mix)
        keys = {**general_keys(described.arch, name, mix.file_type), **described.keys, **vocabulary}
        tensors = _Tensors(checkpoint, described, progress).all()
        try:
            require_room(path.parent, sum(tensor.num_bytes for tensor in tensors.values()))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_gguf(path, keys, tensors)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written.",
                why=f"{error.strerror or error}.",
                fix="Free space or name another folder, and run the command again.",
            ) from None
    return path


def _free_place(output: Path, name: str) -> Path:
    """Returns the file to write. Raises ConfigError where --output is there already, other than as an empty folder."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(
            f"--output {output} exists already.",
            why="Nothing is overwritten.",
            fix=f"Name a folder that does not exist, or a file that ends in {SUFFIX}.",
        )
    return output if output.suffix == SUFFIX and not output.is_dir() else output / name


@dataclass(frozen=True, eq=False, slots=True)
class Described:
    """A model as a GGUF file describes it. plans: how each tensor of the file is made from the checkpoint. types: the
    format of each tensor. Both are mappings by the tensors' names in the file. config: the config that a reader will
    make of the keys."""

    arch: str
    family: Family
    plans: Mapping[str, StoredPlan]
    types: Mapping[str, WrittenBlock]
    divisors: Mapping[str, list[float]]
    keys: Mapping[str, KeyValue]
    config: Config


def _reader(checkpoint: Checkpoint) -> Callable[[str], F32Array]:
    return lambda name: as_f32(checkpoint.read(name))


def describe(
    config: Config,
    model: Model,
    shapes: Mapping[str, Shape],
    read: Callable[[str], F32Array],
    vocabulary: Mapping[str, KeyValue],
    pooling: Pooling | None,
    mix: GgufMix,
) -> Described:
    """Returns the description of a model as a GGUF file. Architectures (entries of the reader's tables) that fit the
    model are tried in order, until a description is read back as the same model.

    shapes: the shapes of the checkpoint's tensors, by name. read: returns the numbers of one tensor. Raises
    UnsupportedModel.
    """
    refused: UnsupportedModel | None = None
    tied = {HEAD} if HEAD in model.ignored or config.get("tie_word_embeddings") else set()
    divisors = rotation_divisors(config)
    for entry, arch, family in entries_to_write(config):
        try:
            seen = {name: shape for name, shape in shapes.items() if name not in tied}
            plans = plan_tensors(family, config, model.num_layers, seen)
            held = family.held(read, model.num_layers)
            filled = {**config, **held}
            _require_all(plans, {name: seen[name] for name in seen.keys() - family.numbers(filled).keys()}, model)
            stored = {name: plan.shape for name, plan in plans.items()}
            keys = model_keys(filled, entry, arch, family, stored)
            keys[f"{arch}.context_length"] = model.max_positions
            keys[f"{arch}.vocab_size"] = model.vocab_size
            keys |= pooling_keys(arch, model.task, pooling)
            said = {**general_keys(arch, "", 0), **keys, **vocabulary}
            types = {name: mixed_type(plan, model.num_layers, OUTPUT not in plans, mix) for name, plan in plans.items()}
            back = read_back(said, plans, types, divisors)
            require_same(config, back)
            return Described(arch, family, plans, types, divisors, keys, back)
        except UnsupportedModel as error:
            refused = refused or error
        except CorruptModel as error:
            refused = refused or UnsupportedModel(
                f"This {model.architecture} cannot be written as GGUF: its file could not be read.",
                why=str(error)[:300],
                fix=FIX,
            )
    raise refused or UnsupportedModel("No entry.", fix=FIX)


def _require_all(plans: Mapping[str, StoredPlan], shapes: Mapping[str, Shape], model: Model) -> None:
    placed = {ours for plan in plans.values() for ours in plan.ours}
    lost = sorted(name for name in shapes.keys() - placed if not is_ignored(name, model))
    if lost:
        raise UnsupportedModel(
            f"Tensor {lost[0][:100]} has no place in a GGUF file of this family.",
            fix="Write --to int4, gptq or awq instead.",
        )


class _Tensors:
    """The tensors of a GGUF file, which are made from the checkpoint while the file is written."""

    def __init__(self, checkpoint: Checkpoint, described: Described, progress: Progress) -> None:
        self._checkpoint, self._described = checkpoint, described
        self._progress, self._done = progress, 0
        self._total = sum(checkpoint.info(name).num_bytes for name in checkpoint.names)

    def all(self) -> dict[str, GgufTensorToWrite]:
        described = self._described
        divisors = {name: _whole(np.array(each, np.float32)) for name, each in described.divisors.items()}
        made = {name: self._tensor(plan, described.types[name]) for name, plan in described.plans.items()}
        return {**divisors, **made}

    def _tensor(self, plan: StoredPlan, block: WrittenBlock) -> GgufTensorToWrite:
        rows = math.prod(plan.shape[:-1])

        def chunks() -> Iterator[memoryview]:
            described = self._described
            for values in stored_values(plan, described.family, described.config, self._checkpoint):
                yield block.rows(values.reshape(-1, plan.shape[-1])).reshape(-1).data
            if not plan.piece:
                self._done += sum(self._checkpoint.info(name).num_bytes for name in plan.ours)
                self._progress(self._done, self._total, plan.ours[0])

        return GgufTensorToWrite(block.number, plan.shape, rows * block.row_bytes(plan.shape[-1]), chunks)


def mixed_type(plan: StoredPlan, layers: int, is_tied: bool, mix: GgufMix) -> WrittenBlock:
    """Returns the type of a tensor in llama.cpp's mix. layers: the model's number of layers. is_tied: whether the
    embedding is the head, too.

    Vectors, routers, states and filters are not rounded.
    """
    columns = plan.shape[-1]
    kept = plan.stem.startswith(KEPT) or plan.stem == DECAY
    whole = kept or plan.stem.endswith(("_norm", "_gate_inp", "_gate_inp_shexp"))
    if len(plan.shape) == 1 or plan.name.endswith(".bias") or whole:
        return TYPES["F32"]
    name = mix.finer if has_more_bits(plan, layers, is_tied, mix) else mix.usual
    fitting = (each for each in (name, NARROW.get(name, name)) if columns % TYPES[each].elements == 0)
    return TYPES[next(fitting, "F32")]


def has_more_bits(plan: StoredPlan, layers: int, is_tied: bool, mix: GgufMix) -> bool:
    """Returns True for a matrix that gets the mix's finer type: the head. In Q4_K_M, also some matrices that make V or
    end a feed-forward block: in the first and last eighth of the layers, and in every third layer between. layers,
    is_tied: see `mixed_type`."""
    if mix.name == "Q4_K_M" and plan.stem in ("attn_v", "ffn_down", "ffn_down_exps"):
        eighth = layers // 8
        return plan.layer < eighth or plan.layer >= 7 * layers // 8 or (plan.layer - eighth) % 3 == 2
    return plan.stem == "output" or (plan.stem == "token_embd" and is_tied)


def _whole(values: F32Array) -> GgufTensorToWrite:
    octets = TYPES["F32"].rows(values.reshape(1, -1)).reshape(-1)
    return GgufTensorToWrite(TYPES["F32"].number, values.shape, octets.nbytes, lambda: iter((octets.data,)))
