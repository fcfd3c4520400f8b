"""Converts a quantized stage to the tensors of its file, and reads its weights back from the file.

The input of the next stage is computed with weights from the file, read by the loader that serves the model later. A
file that cannot be read is therefore found at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.program.values import Vector, Weight
from twostroke.quantize.driver.array_tensor import overlaid
from twostroke.quantize.driver.products import WEIGHT, StageProducts
from twostroke.quantize.driver.solve_stage import SolvedStage
from twostroke.quantize.driver.stages import StagedModel
from twostroke.quantize.driver.tensor_file import TensorToWrite
from twostroke.quantize.layouts.named import Layout
from twostroke.weights.checkpoint import SafetensorsTensor
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.quantized.present import with_matrices
from twostroke.weights.quantized.recipe import scheme_of
from twostroke.weights.safetensors import SafetensorsFile
from twostroke.weights.stacks import StackedTensor
from twostroke.weights.tensor_source import SourceArray

COPY_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class StoredStage:
    """Writes and reads the files of stages. source: the original model under the program's names; its tensors know
    their names on the disk. layout, group: how quantized matrices are stored."""

    source: StagedModel
    layout: Layout
    group: int

    def tensors(self, index: int, solved: SolvedStage, written: Mapping[str, str]) -> dict[str, TensorToWrite]:
        """Returns the tensors to write for a stage, by their names in the file: codes and scales of quantized matrices,
        changed tensors, and copies of the others. written: the names in earlier files, which are not copied again."""
        found: dict[str, TensorToWrite] = {}
        for name in self._read_by(index):
            disk, module = self.on_disk(name), name.removesuffix(WEIGHT)
            if module in solved.solved:
                arrays = self.layout.arrays(solved.solved[module])
                stem = disk.removesuffix(WEIGHT)
                found |= {f"{stem}.{part}": TensorToWrite.of(values) for part, values in arrays.items()}
            elif name in solved.changed:
                found[disk] = self._changed(name, solved.changed[name])
            elif disk not in written:
                found[disk] = self._copied(name)
        return found

    def rest(self, written: Mapping[str, str]) -> dict[str, TensorToWrite]:
        """Returns the tensors that no stage reads and that no earlier file contains (`written`)."""
        done = {name for index in range(len(self.source.stages)) for name in self._read_by(index)}
        names = sorted(self.source.checkpoint.names - done)
        return {self.on_disk(name): self._copied(name) for name in names if self.on_disk(name) not in written}

    def names_in(self, file: Path) -> list[str]:
        """Returns the names of the tensors in a stage's finished file. Raises CorruptModel."""
        opened = SafetensorsFile.open(file)
        try:
            return list(opened.tensors)
        finally:
            opened.close()

    def weights(self, index: int, file: Path) -> ModelWeights:
        """Loads the weights of stage `index`: tensors in its quantized `file` replace those of the original checkpoint.
        Raises CorruptModel."""
        opened = SafetensorsFile.open(file)
        try:
            plain = {name: SafetensorsTensor(opened, name) for name in opened.tensors}
            scheme = scheme_of({"quantization_config": self.layout.config(self.group, ())})
            quantized = any(name.endswith(("scales", "weight_scale")) for name in plain)
            found: Mapping[str, Any] = with_matrices(plain, scheme) if scheme and quantized else plain
            program = {self.on_disk(name): name for name in self.source.checkpoint.names}
            known = {program[name]: tensor for name, tensor in found.items() if name in program}
            return self.source.weights(index, overlaid(self.source.checkpoint, known))
        finally:
            opened.close()

    def estimate(self, products: list[StageProducts]) -> int:
        """Returns the expected bytes of the whole quantized model. products: the matrices of all stages that are
        quantized."""
        quantized = {
            name: shape for each in products for product in each.products for name, shape in product.tensors.items()
        }
        total = 0
        for name in self.source.checkpoint.names:
            if name in quantized:
                rows, columns = quantized[name]
                groups = -(-columns // (self.layout.group_for(rows, columns, self.group) or columns))
                total += rows * columns * self.layout.rule.bits // 8 + 4 * rows * groups + 8 * columns
            else:
                total += self.source.checkpoint.info(name).num_bytes
        return total

    def on_disk(self, name: str) -> str:
        """Returns the name that a tensor of the program has in the checkpoint's files."""
        tensor = self.source.checkpoint.tensors[name]
        return tensor.stored if isinstance(tensor, SafetensorsTensor) else name

    def _read_by(self, index: int) -> list[str]:
        program = self.source.stages[index].program
        readers: tuple[Weight | Vector, ...] = (*program.weights, *program.vectors)
        names = [part.name for reader in readers for part in (*reader.parts, *getattr(reader, "bias", ()))]
        return list(dict.fromkeys(names))

    def _changed(self, name: str, values: F32Array) -> TensorToWrite:
        """Returns a vector that was divided by scales, as a tensor to write. It is bfloat16 if the original is and the
        new values are exact in bfloat16, otherwise float32."""
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        if self.source.checkpoint.info(name).dtype != "BF16" or (bits & np.uint32(0xFFFF)).any():
            return TensorToWrite.of(values)
        return _array((bits >> np.uint32(16)).astype(np.uint16))

    def _copied(self, name: str) -> TensorToWrite:
        """Returns the tensor as the checkpoint stores it."""
        tensor = self.source.checkpoint.tensors[name]
        info = tensor.info
        if isinstance(tensor, StackedTensor):
            return _array(tensor.read_rows(0, info.shape[0]))
        if not isinstance(tensor, SafetensorsTensor):
            raise TypeError(f"{name} is no tensor of a file")
        step = max(1, COPY_BYTES * info.rows // max(1, info.num_bytes))

        def chunks() -> Iterator[bytes | memoryview]:
            for first in range(0, info.rows, step):
                yield tensor.read_raw(first, min(step, info.rows - first)).data

        return TensorToWrite(info.dtype, info.shape, info.num_bytes, chunks)


def _array(values: SourceArray) -> TensorToWrite:
    """Returns an array of bf16 bits or of floats as a tensor to write."""
    if values.dtype != np.uint16:
        return TensorToWrite.of(values)
    halves = np.ascontiguousarray(values)
    return TensorToWrite("BF16", halves.shape, halves.nbytes, lambda: iter((halves.reshape(-1).view(np.uint8).data,)))
