"""A checkpoint folder. It holds one safetensors file, shards listed in an index, or a note that names a GGUF file
(gguf/unfold.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from twostroke.ops.operands import U8Array
from twostroke.ops.stored_values import StoredValues
from twostroke.types.errors import CorruptModel, ModelNotFound, UnsupportedModel
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.gguf.tensors import GgufTensor
from twostroke.weights.gguf.unfold import NAME_FILE, open_named
from twostroke.weights.json_file import DOWNLOAD_AGAIN, parse_object, read_bytes, without_mark
from twostroke.weights.quantized.present import with_matrices
from twostroke.weights.quantized.recipe import scheme_in
from twostroke.weights.quantized.tensor import QuantizedTensor
from twostroke.weights.safetensors import SafetensorsFile
from twostroke.weights.tensor_source import SourceArray, TensorInfo, TensorSource, WeightFile

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
MAX_INDEX_ENTRIES, MAX_INDEX_BYTES = 1 << 20, 256 << 20
"""The most entries and bytes of an index. 60 layers of 384 experts, with three matrices of three tensors each, have
207,360 names, which take over 20 MB."""
MAX_SHARDS = 4096
NOT_THE_MODEL = ("adapter_model", "consolidated", "mmproj", ".")
"""Beginnings of the names of safetensors files that hold other data than the model, or its weights under other names.
"""
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


class SafetensorsTensor(Struct, frozen=True):
    """A tensor of an open file. Satisfies `TensorSource`."""

    file: SafetensorsFile
    stored: str

    @property
    def info(self) -> TensorInfo:
        return self.file.tensors[self.stored]

    def read_rows(self, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        return self.file.read_rows(self.stored, first, count, out)

    def read_raw(self, first: int, count: int) -> U8Array:
        """Returns the bytes of rows [first, first + count) as the file has them."""
        return self.file.read_raw(self.stored, first, count)


class Checkpoint:
    """All tensors of a model by name. Close it, or use it in a `with` statement."""

    def __init__(self, folder: Path, shards: Mapping[str, WeightFile], tensors: Mapping[str, TensorSource]) -> None:
        """Takes the open files by name (`shards`), which `close` closes, and their tensors by name."""
        self.folder = folder
        self.shards = dict(sorted(shards.items()))
        self.tensors = dict(tensors)

    @classmethod
    def open(cls, folder: Path, single: str | None = None) -> Checkpoint:
        """Opens and checks every file. single: the name of the one file to open; None for the folder's usual files.

        Raises ModelNotFound, UnsupportedModel (other formats) or CorruptModel.
        """
        if not folder.is_dir():
            raise ModelNotFound(f"There is no folder {folder}.", fix="Give a folder with config.json, or a hub id.")
        if single is not None:
            return cls(folder, *_open_shards(folder, [single], None))
        if (folder / NAME_FILE).exists():
            return cls(folder, *open_named(folder))
        if (folder / SINGLE_NAME).exists():
            return cls._quantized_or_plain(folder, *_open_shards(folder, [SINGLE_NAME], None))
        if (folder / INDEX_NAME).exists():
            shard_of = _read_weight_map(folder / INDEX_NAME)
            return cls._quantized_or_plain(folder, *_open_shards(folder, sorted(set(shard_of.values())), shard_of))
        return cls._quantized_or_plain(folder, *_open_shards(folder, shards_without_index(folder), None))

    @classmethod
    def _quantized_or_plain(
        cls, folder: Path, shards: dict[str, SafetensorsFile], tensors: dict[str, SafetensorsTensor]
    ) -> Checkpoint:
        try:
            scheme = scheme_in(folder)
            return cls(folder, shards, tensors if scheme is None else with_matrices(tensors, scheme))
        except BaseException:
            for shard in shards.values():
                shard.close()
            raise

    def renamed(self, names: Mapping[str, str]) -> Checkpoint:
        """Returns a checkpoint with the same open files and other names for these tensors. names: present name -> new
        name."""
        return Checkpoint(
            self.folder, self.shards, {names.get(name, name): tensor for name, tensor in self.tensors.items()}
        )

    @property
    def origin(self) -> str:
        """The place of the weights, for people: the folder, or the GGUF file from which the folder was made."""
        first = next(iter(self.shards.values())).path
        return str(self.folder if first.parent == self.folder else first)

    @property
    def is_gguf(self) -> bool:
        """Whether a GGUF file holds the tensors."""
        return any(isinstance(tensor, GgufTensor) for tensor in self.tensors.values())

    @property
    def names(self) -> frozenset[str]:
        """All tensor names."""
        return frozenset(self.tensors)

    @property
    def stored_names(self) -> frozenset[str]:
        """The names of all tensors in safetensors files, including parts of quantized matrices and tensors that are not
        read."""
        files = (shard for shard in self.shards.values() if isinstance(shard, SafetensorsFile))
        return frozenset(name for file in files for name in file.tensors)

    def info(self, name: str) -> TensorInfo:
        """Returns shape, dtype and place of a tensor. Raises KeyError."""
        return self.tensors[name].info

    def read(self, name: str) -> SourceArray:
        """Returns a whole tensor, in its shape: float32, or uint16 with the bits of bf16."""
        tensor = self.tensors[name]
        return tensor.read_rows(0, tensor.info.rows)

    def read_rows(self, name: str, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """Returns rows [first, first + count) of a tensor; see SafetensorsFile.read_rows."""
        return self.tensors[name].read_rows(first, count, out)

    def read_stored(self, name: str, first: int, count: int, kind: WeightKind) -> StoredValues:
        """Returns rows of a quantized tensor as codes and scales, for a kind that can hold them.

        Raises CorruptModel; TypeError for tensors of floats.
        """
        tensor = self.tensors[name]
        if not isinstance(tensor, GgufTensor | QuantizedTensor):
            raise TypeError(f"{name} holds no codes")
        return tensor.read_stored(first, count, kind)

    def holds_negated_exp(self, name: str) -> bool:
        """Returns whether the file stores -exp(v) for each value v of the tensor, as GGUF files do for A_log of Mamba.
        """
        tensor = self.tensors[name]
        return isinstance(tensor, GgufTensor) and tensor.negated_exp

    def close(self) -> None:
        """Closes all shards."""
        for shard in self.shards.values():
            shard.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _open_shards(
    folder: Path, names: list[str], shard_of: Mapping[str, str] | None
) -> tuple[dict[str, SafetensorsFile], dict[str, SafetensorsTensor]]:
    """Returns the open files and their tensors. shard_of: the file of each tensor; None for all tensors that the files
    hold."""
    shards: dict[str, SafetensorsFile] = {}
    try:
        for name in names:
            shards[name] = SafetensorsFile.open(folder / name)
        if shard_of is None:
            shard_of = _owners(shards)
        for tensor, name in shard_of.items():
            if tensor not in shards[name].tensors:
                raise CorruptModel(
                    f"{name} does not hold tensor {tensor[:100]}.",
                    why=f"{INDEX_NAME} says that it does.",
                    fix=DOWNLOAD_AGAIN,
                )
    except BaseException:
        for shard in shards.values():
            shard.close()
        raise
    return shards, {tensor: SafetensorsTensor(shards[name], tensor) for tensor, name in shard_of.items()}


def _owners(shards: Mapping[str, SafetensorsFile]) -> dict[str, str]:
    """Returns tensor -> the file that holds it. Raises CorruptModel where two files hold the same tensor."""
    found: dict[str, str] = {}
    for name, file in shards.items():
        if twice := next(iter(found.keys() & file.tensors.keys()), None):
            raise CorruptModel(
                f"{found[twice]} and {name} both hold the tensor {twice[:100]}.",
                why=f"There is no {INDEX_NAME} that says which of them counts.",
                fix=DOWNLOAD_AGAIN,
            )
        found |= dict.fromkeys(file.tensors, name)
    return found


def shards_without_index(folder: Path) -> list[str]:
    """Returns the files of weights in a folder that has neither the usual file nor an index: all numbered shards, or
    one file under another name. Raises ModelNotFound, UnsupportedModel, CorruptModel."""
    names = sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith(NOT_THE_MODEL))
    if len(names) == 1 and not _NUMBERED.fullmatch(names[0]):
        return names
    sets: dict[tuple[str, int], list[str]] = {}
    for name in names:
        if numbered := _NUMBERED.fullmatch(name):
            sets.setdefault((numbered[1], int(numbered[3])), []).append(name)
    if not sets:
        raise _no_weights(folder, names)
    if len(sets) > 1:
        raise ModelNotFound(
            f"{folder} holds shards of {len(sets)} checkpoints, and no {INDEX_NAME}.",
            why=f"There are {', '.join(sorted(each[0] for each in sets.values())[:4])}.",
            fix="Download the model's index too, or remove the files of the others.",
        )
    (stem, count), found = next(iter(sets.items()))
    wanted = [f"{stem}-{number + 1:05}-of-{count:05}.safetensors" for number in range(min(count, MAX_SHARDS))]
    missing = [name for name in wanted if name not in found]
    if missing or len(wanted) != count:
        raise CorruptModel(
            f"The shard {(missing or wanted)[0]} is missing in {folder}.",
            why=f"{len(missing)} of {count:,} shards are not there, and neither is {INDEX_NAME}.",
            fix="Download the model again; an interrupted download goes on where it stopped.",
        )
    return wanted


def _read_weight_map(path: Path) -> dict[str, str]:
    raw = without_mark(read_bytes(path, MAX_INDEX_BYTES))
    weight_map: Any = parse_object(raw, path.name).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or len(weight_map) > MAX_INDEX_ENTRIES:
        raise CorruptModel(f"{path.name}: weight_map must be an object of tensor names.", fix=DOWNLOAD_AGAIN)
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not _is_plain_file_name(name):
            raise CorruptModel(
                f"{path.name}: tensor {tensor[:100]} lies in {str(name)[:100]!r}.",
                why="A shard must be a *.safetensors file next to the index, named without folders.",
                fix=DOWNLOAD_AGAIN,
            )
    names = set(weight_map.values())
    if len(names) > MAX_SHARDS:
        raise CorruptModel(f"{path.name} names {len(names):,} shards.", why=f"At most {MAX_SHARDS:,} are read.")
    missing = sorted(name for name in names if not (path.parent / name).exists())
    if missing:
        raise CorruptModel(
            f"The shard {missing[0]} is missing in {path.parent}.",
            why=f"{len(missing)} of {len(names)} shards named by {path.name} are not there.",
            fix="Download the model again; an interrupted download goes on where it stopped.",
        )
    return weight_map


def _is_plain_file_name(name: str) -> bool:
    forbidden = any(character in name for character in "/\\:\0")
    return name.endswith(".safetensors") and not forbidden and not name.startswith(".") and len(name) <= 255


def _no_weights(folder: Path, unclear: Sequence[str]) -> UnsupportedModel | ModelNotFound:
    """Returns the error for a folder in which no weights were found. unclear: the names of its safetensors files, when
    it is unclear which of them are the model's."""
    others = [path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in sorted(folder.glob(pattern))]
    if others:
        return UnsupportedModel(
            f"{folder} holds {others[0]}, but no {SINGLE_NAME}.",
            why="Only safetensors and GGUF are read: the other formats can run code, or are not implemented.",
            fix="Use a revision of the model with safetensors, or convert it with its own tools.",
        )
    if unclear:
        return ModelNotFound(
            f"{folder} holds {len(unclear)} safetensors files, and no {INDEX_NAME} that says what is in them.",
            why=f"There are {', '.join(unclear[:4])}.",
            fix="Download the index too, or keep one checkpoint in the folder.",
        )
    return ModelNotFound(
        f"{folder} holds no weights.",
        why=f"Neither {SINGLE_NAME} nor {INDEX_NAME} is there.",
        fix="Give the folder that holds config.json and the *.safetensors files.",
    )
