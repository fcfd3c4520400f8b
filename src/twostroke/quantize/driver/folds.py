"""Finds where the inputs of products can be divided by scales (AWQ, SmoothQuant) without a change of the model: the
division moves into the tensor that makes the input.

Two places are known. A norm whose result is read by products alone: its weight (and bias) is divided. A gated block:
`gate` multiplies the rows of `up` into the input of `down`, so these rows are divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twostroke.ops.operands import F32Array
from twostroke.ops.passes.cut import Stage
from twostroke.ops.products.linear import Linear
from twostroke.ops.program.op import Op
from twostroke.ops.program.values import Value, Vector, VectorForm
from twostroke.ops.rows.gate import GateProduct
from twostroke.ops.rows.layer_norm import LayerNorm
from twostroke.ops.rows.rms_norm import RmsNorm
from twostroke.quantize.driver.products import InputKey, Product, StageProducts


@dataclass(frozen=True, eq=False, slots=True)
class Fold:
    """The tensors that make the input of some products. To divide the input's channels by scales, these tensors are
    divided.

    vectors: for the name of each vector, the number that is added to its numbers when it is loaded (1 for Gemma's
    norms). rows: for the name of each matrix, the first row that is divided; as many rows follow as there are channels.
    """

    vectors: Mapping[str, float]
    rows: Mapping[str, int]


def divided_vector(stored: F32Array, added: float, scales: F32Array) -> F32Array:
    """Returns the numbers to store in place of `stored`. After loading, the vector is then the original vector divided
    by `scales`. added: the number that loading adds to each stored number."""
    if not added:
        return (stored / scales).astype(np.float32)
    found: F32Array = ((stored + np.float32(added)) / scales - np.float32(added)).astype(np.float32)
    return found


def find_folds(stage: Stage, products: StageProducts, users: Counter[str]) -> dict[InputKey, Fold]:
    """Returns, for the inputs of a stage's products that can be divided by scales, the tensors that are divided
    instead. Inputs without such tensors are left out. users: the result of `tensor_users`."""
    calls = stage.program.calls
    found: dict[InputKey, Fold] = {}
    for same in products.by_input():
        if not _read_by_these_alone(calls, same[0].x, same, stage):
            continue
        maker = next((call for call in reversed(calls) if _makes(call, same[0].x)), None)
        fold = None
        if isinstance(maker, RmsNorm | LayerNorm):
            fold = _of_norm(maker, users)
        elif isinstance(maker, GateProduct):
            fold = _of_gate(calls, maker, products, stage)
        if fold is not None:
            found[same[0].input_key] = fold
    return found


def _makes(call: Op, x: Value) -> bool:
    made = call.result
    return made is not None and made.root is x.root and made.width == x.width == x.root.width


def _read_by_these_alone(calls: tuple[Op, ...], x: Value, same: tuple[Product, ...], stage: Stage) -> bool:
    """Returns whether, within the stage, these products read the whole value x, and no other call reads it."""
    weights = {product.weight for product in same}
    makers = [index for index, call in enumerate(calls) if _makes(call, x)]
    if len(makers) != 1 or stage.program.logits.root is x.root:
        return False
    readers = [call for call in calls[makers[0] + 1 :] if any(value.root is x.root for value in call.reads())]
    return all(isinstance(call, Linear) and call.weight in weights for call in readers)


def _of_norm(maker: RmsNorm | LayerNorm, users: Counter[str]) -> Fold | None:
    vectors = [maker.weight, *([maker.bias] if isinstance(maker, LayerNorm) and maker.bias else [])]
    return (
        Fold({each.parts[0].name: each.plus for each in vectors}, {}) if all(_own(v, users) for v in vectors) else None
    )


def _own(vector: Vector, users: Counter[str]) -> bool:
    """Returns whether a vector, such as a norm's weight, can be divided by scales in the checkpoint: it is one whole
    tensor, no other part of the program reads it, and loading adds at most a constant to it."""
    part = vector.parts[0] if len(vector.parts) == 1 else None
    if part is None or vector.form is not VectorForm.STORED or users[part.name] > 1 or len(part.shape) != 1:
        return False
    return part.rows is None and part.order is None and part.matrix is None


def _of_gate(calls: tuple[Op, ...], maker: GateProduct, products: StageProducts, stage: Stage) -> Fold | None:
    """Returns how a gated block's result, the input of `down`, can be divided by scales: the rows of the matrix `up`
    are divided. Returns None where that is impossible. `up` must be the last rows of one tensor, in the tensor's
    order."""
    before = next((call for call in calls if isinstance(call, Linear) and call.out.root is maker.x.root), None)
    known = {product.weight for product in products.products}
    if before is None or before.weight not in known or maker.limit or maker.shift or before.weight.bias:
        return None
    readers = [call for call in calls if any(value.root is maker.x.root for value in call.reads())]
    part, inner = before.weight.parts[-1], maker.out.width
    plain = part.order is None and part.rows is None and part.length in (inner, 2 * inner)
    if readers != [maker] or not plain or before.out.width != 2 * inner:
        return None
    return Fold({}, {part.name: part.length - inner})
