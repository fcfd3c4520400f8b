"""Replaces, among the tensors of a checkpoint, the parts of each quantized matrix by the matrix itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from twostroke.types.errors import CorruptModel
from twostroke.weights.quantized.kv_scales import KV_SCALE, check_kv_scales
from twostroke.weights.quantized.parts import FIX, RawTensor, StoredTensors
from twostroke.weights.quantized.tensor import OrderTensor, QuantizedTensor
from twostroke.weights.tensor_source import ORDER

if TYPE_CHECKING:
    from twostroke.weights.quantized.schemes import Scheme

_Plain = TypeVar("_Plain", bound=RawTensor)

UNUSED = re.compile(
    r".*\.(input_scale|input_global_scale|input_zero_point|activation_scale|q_scale|output_scale"
    r"|weight_format|weight_shape|bias_scale)"
)
"""Tensors that are not used: scales of activations, because Twostroke rounds activations by their own values at each
step, and notes on a layout."""


def with_matrices(tensors: Mapping[str, _Plain], scheme: Scheme) -> dict[str, _Plain | QuantizedTensor | OrderTensor]:
    """Returns the tensors of a checkpoint by name, with each quantized matrix in place of its stored parts. The matrix
    has the name that the tensor has in the unquantized model. For a matrix with act-order, its column order is one more
    tensor (OrderTensor). Raises CorruptModel, also for a checkpoint without any quantized matrix."""
    check_kv_scales(tensors)
    stored = StoredTensors(tensors)
    made = {name: QuantizedTensor(name, matrix) for name, matrix in scheme.matrices(stored)}
    if not made:
        raise CorruptModel(
            f"The config says that the weights are quantized ({scheme.method}), and no tensor is.",
            why="The parts of a quantized matrix have names of their own, and none of them is there.",
            fix=FIX,
        )
    gone = {part for tensor in made.values() for part in tensor.matrix.parts}
    for name in made:
        if name in tensors and name not in gone:
            raise CorruptModel(f"Tensor {name[:200]} is there twice: plain, and quantized.", fix=FIX)
    found: dict[str, _Plain | QuantizedTensor | OrderTensor] = {
        name: tensor
        for name, tensor in tensors.items()
        if name not in gone and not UNUSED.fullmatch(name) and not KV_SCALE.fullmatch(name)
    }
    orders = {f"{name}{ORDER}": OrderTensor(tensor) for name, tensor in made.items() if tensor.column_order is not None}
    return found | made | orders
