"""Makes a model's folder from a GGUF file: its keys become config.json, tokenizer.json and the other small files.

    folder/<digest>/  config.json  tokenizer.json  tokenizer_config.json  generation_config.json  gguf.json
                      modules.json  1_Pooling/config.json where the file tells how rows become a vector

The weights stay in the GGUF file, which gguf.json names. So all code that reads a model's folder can read this one, and
a tokenizer of 100,000 tokens is rebuilt once. The digest is made of the header, the path, the size, the time and
VERSION. So another file, or a program that unfolds in another way, has another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from twostroke.types.errors import CorruptModel
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.weights.gguf.container import GgufFile, GgufHeader, StoredTensor, open_split
from twostroke.weights.gguf.naming import named_tensors
from twostroke.weights.gguf.tensors import GgufTensor, NumbersOfKeys
from twostroke.weights.json_file import read_object
from twostroke.weights.kept_folder import make_folder

if TYPE_CHECKING:
    from twostroke.weights.gguf import members
    from twostroke.weights.gguf.families import table
else:
    members = LazyModule("twostroke.weights.gguf.members")  # a start that finds the folder does not need this module
    table = LazyModule("twostroke.weights.gguf.families.table")

NAME_FILE = "gguf.json"
UNFOLDED = "gguf"
"""The name of the subfolder of the cache in which `unfold` makes its folders."""
VERSION = "8"


class Unfolded(Struct, frozen=True):
    """The folder that was made from a GGUF file. headers: the headers of the file and its parts. As long as they are
    held, opening the folder's tensors parses nothing."""

    folder: Path
    headers: tuple[GgufHeader, ...]


def unfold(path: Path, cache: Path | None) -> Path:
    """Makes the model's folder of a GGUF file, if it does not exist yet, and returns it; `unfold_file` has the details.
    """
    return unfold_file(path, cache).folder


def unfold_file(path: Path, cache: Path | None) -> Unfolded:
    """Returns the folder of a GGUF file (of its first part), which is made if it does not exist yet.

    cache: the folder in which it is kept; where cache is None or cannot be written, the folder lasts as long as this
    process. Raises CorruptModel, UnsupportedModel.
    """
    path = Path(os.path.abspath(path))  # links are not resolved: the hub's cache has the names, its targets do not
    files = open_split(path)
    try:
        return Unfolded(_folder_of(path, files, cache), tuple(file.parsed for file in files.values()))
    finally:
        for file in files.values():
            file.close()


def _folder_of(path: Path, files: Mapping[str, GgufFile], cache: Path | None) -> Path:
    parent = None if cache is None else cache / UNFOLDED
    return make_folder(parent, _digest(path, files), NAME_FILE, lambda: _members(path, files))


def open_named(folder: Path) -> tuple[dict[str, GgufFile], dict[str, GgufTensor | NumbersOfKeys]]:
    """Opens the GGUF files that the gguf.json of an unfolded folder names, and returns them and all their tensors by
    Hugging Face names."""
    named = read_object(folder / NAME_FILE).get("file")
    if not isinstance(named, str):
        raise CorruptModel(f"{NAME_FILE} names no file.", fix=f"Delete the folder {folder}; it is made anew.")
    files = open_split(Path(named))
    try:
        values = next(iter(files.values())).values
        _, family, _ = table.family_of(values, Path(named).name, _all_tensors(files))
        return files, dict(named_tensors(files, family, read_object(folder / "config.json")))
    except BaseException:
        for file in files.values():
            file.close()
        raise


def _digest(path: Path, files: Mapping[str, GgufFile]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, file in files.items():
        status = os.stat(file.path)
        said = f"{VERSION} {path.parent} {name} {status.st_size} {status.st_mtime_ns} {len(file.header)}"
        digest.update(said.encode() + b"\0" + file.header)
    return digest.hexdigest()


def _members(path: Path, files: Mapping[str, GgufFile]) -> dict[str, str]:
    made = members.members_of(path, files, _all_tensors(files))
    return {**made, NAME_FILE: json.dumps({"file": str(path)}, ensure_ascii=False)}


def _all_tensors(files: Mapping[str, GgufFile]) -> dict[str, StoredTensor]:
    return {name: tensor for file in files.values() for name, tensor in file.tensors.items()}
