"""A checkpoint folder: one safetensors file, or shards behind an index.

Knows: the file names of a Hugging Face folder.
Must not know: which tensors a model needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.types.errors import CorruptModel, ModelNotFound, UnsupportedModel
from twostroke.weights.json_file import DOWNLOAD_AGAIN, read_object
from twostroke.weights.safetensors import SafetensorsFile, SourceArray, TensorInfo

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
MAX_INDEX_ENTRIES = 1 << 20
MAX_SHARDS = 4096


class Checkpoint:
    """All tensors of a model by name. Close it, or use it in a `with` statement."""

    def __init__(self, folder: Path, shards: Mapping[str, SafetensorsFile], shard_of: Mapping[str, str]) -> None:
        self.folder = folder
        self.shards = dict(sorted(shards.items()))
        self._places = {name: (shard, name) for name, shard in shard_of.items()}

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Open and check every shard. Raises ModelNotFound, UnsupportedModel (no safetensors) or CorruptModel."""
        if not folder.is_dir():
            raise ModelNotFound(f"There is no folder {folder}.", fix="Give a folder with config.json, or a hub id.")
        if (folder / SINGLE_NAME).exists():
            shard_of = None
            shard_names = {SINGLE_NAME}
        elif (folder / INDEX_NAME).exists():
            shard_of = _read_weight_map(folder / INDEX_NAME)
            shard_names = set(shard_of.values())
        else:
            raise _no_weights(folder)
        shards: dict[str, SafetensorsFile] = {}
        try:
            for name in sorted(shard_names):
                shards[name] = SafetensorsFile.open(folder / name)
            if shard_of is None:
                shard_of = dict.fromkeys(shards[SINGLE_NAME].tensors, SINGLE_NAME)
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
        return cls(folder, shards, shard_of)

    def renamed(self, names: Mapping[str, str]) -> Checkpoint:
        """The same open files, where these tensors have other names: present name -> new name."""
        found = Checkpoint(self.folder, self.shards, {})
        for name, (shard, stored) in self._places.items():
            found._places[names.get(name, name)] = (shard, stored)
        return found

    @property
    def names(self) -> frozenset[str]:
        """All tensor names."""
        return frozenset(self._places)

    def info(self, name: str) -> TensorInfo:
        """Shape, dtype and place of a tensor. Raises KeyError."""
        shard, stored = self._places[name]
        return self.shards[shard].tensors[stored]

    def read(self, name: str) -> SourceArray:
        """A whole tensor; see SafetensorsFile.read."""
        shard, stored = self._places[name]
        return self.shards[shard].read(stored)

    def read_rows(self, name: str, first: int, count: int, out: SourceArray | None = None) -> SourceArray:
        """Rows [first, first + count) of a tensor; see SafetensorsFile.read_rows."""
        shard, stored = self._places[name]
        return self.shards[shard].read_rows(stored, first, count, out)

    def close(self) -> None:
        """Close all shards."""
        for shard in self.shards.values():
            shard.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _read_weight_map(path: Path) -> dict[str, str]:
    weight_map: Any = read_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or len(weight_map) > MAX_INDEX_ENTRIES:
        raise CorruptModel(f"{path.name}: weight_map must be an object of tensor names.", fix=DOWNLOAD_AGAIN)
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not _is_plain_file_name(name):
            raise CorruptModel(
                f"{path.name}: tensor {tensor[:100]} lies in {str(name)[:100]!r}.",
                why="A shard must be a *.safetensors file beside the index, named without folders.",
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


def _no_weights(folder: Path) -> UnsupportedModel | ModelNotFound:
    others = [path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.gguf") for path in sorted(folder.glob(pattern))]
    if others:
        return UnsupportedModel(
            f"{folder} holds {others[0]}, but no {SINGLE_NAME}.",
            why="Only safetensors are read: the other formats can run code, or are not implemented.",
            fix="Use a revision of the model with safetensors, or convert it with its own tools.",
        )
    return ModelNotFound(
        f"{folder} holds no weights.",
        why=f"Neither {SINGLE_NAME} nor {INDEX_NAME} is there.",
        fix="Give the folder that holds config.json and the *.safetensors files.",
    )
