"""A folder with a LoRA adapter, as PEFT writes it: adapter_config.json and adapter_model.safetensors.

    base_model.model.<module>.lora_A.weight  (r, inputs)      base_model.model.<module>.lora_B.weight  (outputs, r)

Everything is checked against the model before any number is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct

from twostroke.ops.operands import F32Array, bf16_to_f32
from twostroke.ops.passes.with_adapters import linear_tensors, unknown_modules
from twostroke.ops.program.model import Model
from twostroke.ops.program.values import Tensor
from twostroke.runner.adapters.lora_config import CONFIG_NAME, LoraConfig, read_lora_config
from twostroke.types.errors import ConfigError, CorruptModel, ModelError, ModelNotFound, UnsupportedModel
from twostroke.weights.json_file import read_bytes
from twostroke.weights.safetensors import SafetensorsFile
from twostroke.weights.tensor_source import readable_dtype
from twostroke.weights.tensors import program_names

TENSORS_NAME = "adapter_model.safetensors"
HASH_BYTES = 1 << 20
SAVE_AGAIN = "Save the adapter again with PEFT, or download it again."
_TENSOR = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<half>[AB])\.weight")
_OTHER_KINDS = {
    ".lora_embedding_": "Adapters of embeddings are not implemented.",
    ".lora_magnitude_vector": "DoRA is not implemented.",
    ".modules_to_save.": "Whole matrices next to low-rank ones cannot be served by request.",
    ".lora_B.bias": "Biases of adapters are not implemented.",
}


class LoraModule(Struct, frozen=True):
    """A module that an adapter changes. stored: the module's name in the file. rank: the rank of its matrices. scaling:
    the factor of the product B A."""

    stored: str
    rank: int
    scaling: float


class LoraFolder:
    """An open adapter that fits a model. Close it, or use it in `with`.

    modules: the adapter's modules, by their names in the model's program.
    """

    def __init__(self, file: SafetensorsFile, modules: Mapping[str, LoraModule]) -> None:
        self._file = file
        self.modules = modules

    @classmethod
    def open(cls, folder: Path, model: Model) -> LoraFolder:
        """Opens an adapter and checks it against the model. Raises ModelError with the file, the field or the tensor,
        and ConfigError where the adapter does not fit this model."""
        if not folder.is_dir():
            raise ModelNotFound(f"There is no folder {folder}.", fix=f"Give the folder that holds {CONFIG_NAME}.")
        config = read_lora_config(folder)
        if not (folder / TENSORS_NAME).exists() and (folder / "adapter_model.bin").exists():
            raise UnsupportedModel(
                f"{folder} holds adapter_model.bin, but no {TENSORS_NAME}.",
                why="Only safetensors are read: the other format can run code.",
                fix="Save the adapter with safe_serialization=True.",
            )
        file = SafetensorsFile.open(folder / TENSORS_NAME)
        try:
            return cls(file, _modules(file, config, model))
        except BaseException:
            file.close()
            raise

    def matrices(self, name: str) -> tuple[F32Array, F32Array]:
        """Returns A (r, inputs) and B (outputs, r) of a module. B is multiplied by the scaling. Raises CorruptModel."""
        module = self.modules[name]
        down, up = (self._read(f"base_model.model.{module.stored}.lora_{half}.weight") for half in "AB")
        with np.errstate(over="ignore"):
            scaled = up * np.float32(module.scaling)
        if not np.isfinite(scaled).all():
            raise CorruptModel(
                f"Tensor base_model.model.{module.stored}.lora_B.weight is beyond float32 once it is scaled.",
                why=f"Its factor is {module.scaling:g}.",
                fix=SAVE_AGAIN,
            )
        return down, scaled

    def fingerprint(self) -> str:
        """Returns a digest, 32 hex digits, of all bytes of the adapter's config file and its tensor file. Raises
        CorruptModel."""
        digest = hashlib.blake2b(read_bytes(self._file.path.parent / CONFIG_NAME), digest_size=16)
        at = 0
        while piece := self._file.read_at(at, HASH_BYTES):
            digest.update(piece)
            at += len(piece)
        return digest.hexdigest()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> LoraFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, name: str) -> F32Array:
        stored = self._file.read(name)
        values = bf16_to_f32(stored.view(np.uint16)) if stored.dtype == np.uint16 else stored.astype(np.float32)
        if not np.isfinite(values).all():
            raise CorruptModel(f"Tensor {name} holds values that are NaN or infinite.", fix=SAVE_AGAIN)
        return values


@contextlib.contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Raises ConfigError with the adapter's name in place of a ModelError or ConfigError. A broken adapter is an error
    of the request for it, not of the model."""
    try:
        yield
    except (ModelError, ConfigError) as error:
        fix = SAVE_AGAIN if "ownload the model" in error.fix else error.fix
        raise ConfigError(f"The adapter {name!r} cannot be used. {error.what}", why=error.why, fix=fix) from None


def _modules(file: SafetensorsFile, config: LoraConfig, model: Model) -> dict[str, LoraModule]:
    """Returns all modules of the file. Each has both of its tensors, and all of them fit the model."""
    halves: dict[str, set[str]] = {}
    for name in file.tensors:
        match = _TENSOR.fullmatch(name)
        if match is None:
            why = next((why for part, why in _OTHER_KINDS.items() if part in name), "")
            why = why or "Names are base_model.model.MODULE.lora_A.weight and lora_B.weight."
            raise UnsupportedModel(f"{TENSORS_NAME} holds the tensor {name[:120]!r}.", why=why, fix=SAVE_AGAIN)
        halves.setdefault(match["module"], set()).add(match["half"])
    if not halves:
        raise CorruptModel(f"{TENSORS_NAME} holds no tensors.", fix=SAVE_AGAIN)
    known = linear_tensors(model.plain)
    names = program_names(frozenset(f"{module}.weight" for module in halves), model)
    ours = {module: names.get(f"{module}.weight", f"{module}.weight").removesuffix(".weight") for module in halves}
    unknown = [module for module in halves if ours[module] not in known]
    if unknown:
        raise unknown_modules(unknown, known)
    for module, found in halves.items():
        _check(file, config, module, found, known[ours[module]])
    return {ours[module]: LoraModule(module, config.rank_of(module), config.scaling(module)) for module in halves}


def _check(file: SafetensorsFile, config: LoraConfig, module: str, halves: set[str], tensor: Tensor) -> None:
    """Checks that the matrices A and B of a module exist, have the rank of the config, and fit the model's matrix.
    halves: those of "A" and "B" that the file has. tensor: the model's matrix. Raises CorruptModel."""
    base = f"base_model.model.{module}"[:200]
    if len(halves) < 2:
        missing = "B" if "A" in halves else "A"
        raise CorruptModel(f"{TENSORS_NAME} lacks the tensor {base}.lora_{missing}.weight.", fix=SAVE_AGAIN)
    if not config.changes(module):
        raise CorruptModel(
            f"{TENSORS_NAME} holds tensors of {module[:200]}.",
            why=f"{CONFIG_NAME} does not name this module: target_modules, exclude_modules, layers_to_transform.",
            fix=SAVE_AGAIN,
        )
    outputs, inputs = tensor.shape[::-1] if tensor.transposed else tensor.shape
    rank = config.rank_of(module)
    for half, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
        name = f"{base}.lora_{half}.weight"
        info = file.tensors[f"base_model.model.{module}.lora_{half}.weight"]
        readable_dtype(name, info)
        if info.shape != shape:
            raise CorruptModel(
                f"Tensor {name} has the shape {list(info.shape)}, expected {list(shape)}.",
                why=f"The rank is {rank} by {CONFIG_NAME}; the model's matrix has {outputs} rows of {inputs}.",
                fix="Use an adapter that was trained for this model. " + SAVE_AGAIN,
            )
