"""The step Dense of sentence-transformers: a matrix product of the pooled vector. A model may have several of these
steps.

    N_Dense/config.json          in_features, out_features, bias, activation_function
    N_Dense/model.safetensors    linear.weight (out, in), linear.bias (out,)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.ops.operands import F32Array, bf16_to_f32
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.weights.json_file import read_object
from twostroke.weights.safetensors import SafetensorsFile

CONFIG, TENSORS = "config.json", "model.safetensors"
WEIGHT, BIAS = "linear.weight", "linear.bias"
MOST_FEATURES = 1 << 16
_INPUT = "sentence_embedding"
"""The name of the vector that the step reads and writes, unless its config names another one."""

Function = Callable[[NDArray[Any]], NDArray[Any]]
_FUNCTIONS: Mapping[str, Function] = {"Identity": lambda x: x, "Tanh": np.tanh}
"""The activation functions, by the last part of the class name in activation_function."""


class DenseStep(Struct, frozen=True, eq=False):
    """One step Dense. weight: (outputs, inputs) float32. bias: (outputs,), or None. function: the activation function
    that is applied to each element."""

    weight: F32Array
    bias: F32Array | None
    function: Function

    @property
    def outputs(self) -> int:
        """How many numbers the resulting vector has."""
        return len(self.weight)

    def __call__(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the vector (outputs,) that the step makes from a vector (inputs,). It uses no matrix library, because
        the sums of such a library may depend on its number of threads."""
        made = np.einsum("oi,i->o", self.weight, vector.astype(np.float32))
        if self.bias is not None:
            made = made + self.bias
        return np.asarray(self.function(made), np.float64)


def read_dense_step(folder: Path) -> DenseStep:
    """Reads the step of a folder. Raises CorruptModel for files that do not fit each other, UnsupportedModel for a
    function that is not implemented or for tensors in another format."""
    place = f"{folder.name}/{CONFIG}"
    if not (folder / CONFIG).is_file():
        raise CorruptModel(f"{place} is missing.", why="modules.json names this step.", fix="Download the model again.")
    fields = Fields(read_object(folder / CONFIG), place)
    inputs, outputs = (fields.integer(f"{name}_features", 1, MOST_FEATURES) for name in ("in", "out"))
    function = _function(fields)
    for name in ("module_input_name", "module_output_name"):
        if fields.text(name, _INPUT) != _INPUT:
            raise UnsupportedModel(f"{place}: {name} is not {_INPUT}.", why="A step changes the pooled vector only.")
    path = folder / TENSORS
    if not path.is_file():
        raise UnsupportedModel(
            f"{folder.name} has no {TENSORS}.",
            why="Tensors of a step are read from safetensors files.",
            fix="Save the model again with a current version of sentence-transformers.",
        )
    file = SafetensorsFile.open(path)
    try:
        weight = _tensor(file, WEIGHT, (outputs, inputs))
        bias = _tensor(file, BIAS, (outputs,)) if fields.boolean("bias", True) else None
    finally:
        file.close()
    return DenseStep(weight, bias, function)


def _function(fields: Fields) -> Function:
    word = fields.text("activation_function", "Tanh").rsplit(".", 1)[-1]
    if word not in _FUNCTIONS:
        raise UnsupportedModel(
            f"{fields.place}: the activation_function {word[:40]!r} is not implemented.",
            why=f"Implemented: {', '.join(_FUNCTIONS)}.",
            fix="Use a model whose steps have one of these.",
        )
    return _FUNCTIONS[word]


def _tensor(file: SafetensorsFile, name: str, shape: tuple[int, ...]) -> F32Array:
    info = file.tensors.get(name)
    if info is None or info.shape != shape:
        found = "is missing" if info is None else f"has the shape {list(info.shape)}, not {list(shape)}"
        place = f"{file.path.parent.name}/{file.path.name}"
        raise CorruptModel(
            f"{place}: {name} {found}.",
            why="It must have the in_features and out_features of its config.json.",
            fix="Download the model again.",
        )
    values = file.read(name)
    return bf16_to_f32(values.view(np.uint16)) if values.dtype == np.uint16 else np.asarray(values, np.float32)
