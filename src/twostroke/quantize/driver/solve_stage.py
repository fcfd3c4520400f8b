"""Finds the codes of one stage's products: their inputs are measured on the text, and each matrix is rounded for its
inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from twostroke.ops.operands import F32Array, I32Array, bf16_to_f32
from twostroke.ops.products.experts import Experts
from twostroke.ops.products.linear import Linear
from twostroke.ops.program.op import Op
from twostroke.quantize.driver.array_tensor import ArrayTensor, overlaid
from twostroke.quantize.driver.expert_rows import expert_rows
from twostroke.quantize.driver.folds import divided_vector, find_folds
from twostroke.quantize.driver.methods import Method, nearest
from twostroke.quantize.driver.products import WEIGHT, InputKey, Product, StageProducts, tensor_users
from twostroke.quantize.driver.stages import StagedModel
from twostroke.quantize.mathematics.moments import Moments, output_error
from twostroke.quantize.mathematics.solved import Solved
from twostroke.types.errors import UnsupportedModel
from twostroke.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class ProductError:
    """The relative errors of a product's outputs on the calibration text. rounding: the error with the nearest codes.
    chosen: the error with the chosen codes. inputs: the number of rows of the text that reached the product. nearest:
    whether the nearest codes were chosen, because an expert got too few rows."""

    module: str
    rounding: float
    chosen: float
    inputs: int = 0
    nearest: bool = False


@dataclass(frozen=True, eq=False)
class StageInputs:
    """The inputs of a stage on the calibration text. runs: the text, as sequences of token ids. given: the output of
    the stage before, for each sequence."""

    runs: Sequence[I32Array]
    given: Sequence[F32Array]


@dataclass(frozen=True, eq=False)
class SolvedStage:
    """The results of quantizing a stage. solved: the codes by module. changed: the vectors whose numbers differ from
    the checkpoint's. errors: one for each module. factors: for scaled matrices (AWQ, SmoothQuant), the factors of their
    rows (rows, 1) and columns (1, columns)."""

    solved: dict[str, Solved] = field(default_factory=dict)
    changed: dict[str, F32Array] = field(default_factory=dict)
    errors: list[ProductError] = field(default_factory=list)
    factors: dict[str, tuple[F32Array, F32Array]] = field(default_factory=dict)

    def over(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns the checkpoint with the quantized and changed tensors so far in place of the original ones."""
        values = {name: self.scaled(name, tensor_values(checkpoint, name)) for name in self.factors}
        values |= {module + WEIGHT: one.values() for module, one in self.solved.items()}
        return overlaid(checkpoint, {name: ArrayTensor(each) for name, each in {**values, **self.changed}.items()})

    def scaled(self, name: str, matrix: F32Array) -> F32Array:
        """Returns the matrix called `name` with its rows and columns multiplied by the factors in `factors`, such as
        AWQ's scales."""
        rows, columns = self.factors.get(name, (np.float32(1), np.float32(1)))
        found: F32Array = matrix * rows * columns
        return found

    def multiply(self, name: str, shape: tuple[int, int], rows: F32Array | None, columns: F32Array | None) -> None:
        """Adds scaling to a matrix: multiplies its known factors by further factors of rows (rows,) or columns
        (columns,)."""
        before = self.factors.get(name, (np.ones((shape[0], 1), np.float32), np.ones((1, shape[1]), np.float32)))
        more = before[0] if rows is None else before[0] * rows[:, None]
        self.factors[name] = (more, before[1] if columns is None else before[1] * columns)


def solve_stage(
    staged: StagedModel, index: int, inputs: StageInputs, products: StageProducts, method: Method, group: int
) -> SolvedStage:
    """Quantizes stage `index`. products: the products that the method's layout can store. Raises UnsupportedModel."""
    found = SolvedStage()
    together = products.by_input()
    if method.scales is not None:
        scale_stage(staged, index, inputs, products, method, group, found)
    batches = products.in_turn() if method.in_turn else [together]
    for batch in batches:
        measured = measure_inputs(staged, index, inputs, batch, found)
        for same in batch:
            _solve(staged.checkpoint, same, measured[same[0].input_key], method, group, found)
    return found


def measure_inputs(
    staged: StagedModel,
    index: int,
    inputs: StageInputs,
    together: Sequence[tuple[Product, ...]],
    found: SolvedStage,
) -> dict[InputKey, Moments]:
    """Runs the stage on the text, with the weights as found so far, and returns the moments (sums of x x^T, sizes of x)
    of each input of the products. together: tuples of products that read the same input."""
    wanted = {same[0].weight.key: same[0] for same in together if same[0].expert is None}
    moments = {same[0].input_key: Moments.none(same[0].weight.columns) for same in together}
    banks = {same[0].weight for same in together if same[0].expert is not None}
    weights = staged.weights(index, found.over(staged.checkpoint))

    def visit(call: Op, array_of: object) -> None:
        if isinstance(call, Linear) and call.weight.key in wanted and callable(array_of):
            product = wanted[call.weight.key]
            try:
                moments[product.input_key].add(np.ascontiguousarray(array_of(call.x)))
            except ValueError:
                raise _not_finite(call.weight.parts[0].name) from None
        elif isinstance(call, Experts) and banks & {call.gate_up, call.down} and callable(array_of):
            rows = expert_rows(call, array_of(call.x), array_of(call.routes), weights.matrix(call.gate_up))
            for expert, bank, x in rows:
                if bank not in banks:
                    continue
                try:
                    moments[bank, expert, bank.columns].add(x)
                except ValueError:
                    raise _not_finite(bank.parts[0].name) from None

    staged.run(index, weights, inputs.runs, inputs.given, visit)
    return moments


def tensor_values(checkpoint: Checkpoint, name: str) -> F32Array:
    """Returns a whole tensor as float32."""
    values = checkpoint.read(name)
    return bf16_to_f32(values.view(np.uint16)) if values.dtype == np.uint16 else values.astype(np.float32, copy=False)


def _solve(
    checkpoint: Checkpoint,
    same: Sequence[Product],
    moments: Moments,
    method: Method,
    group: int,
    found: SolvedStage,
) -> None:
    """Quantizes all products with the same input (`same`), stacked as one matrix, so that results that depend on the
    inputs alone are computed once. moments: the measurement of this input. group: the group size. The codes and errors
    are added to `found`."""
    names = [name for product in same for name in product.tensors]
    originals = [tensor_values(checkpoint, name) for name in names]
    matrices = [found.scaled(name, each) for name, each in zip(names, originals, strict=True)]
    whole = np.concatenate(matrices)
    chosen = method.of(same[0], moments)
    own = chosen.layout.group_for(len(whole), whole.shape[1], group) or group
    try:
        solved = chosen.solve(whole, moments, chosen.layout, own)
    except ValueError:
        raise _not_finite(names[0]) from None
    plain = np.concatenate(originals)
    rounded = nearest(plain, chosen.layout, own).values() - plain
    changes = (rounded, solved.values() - whole)
    first = 0
    for name, matrix in zip(names, matrices, strict=True):
        here = slice(first, first + len(matrix))
        energy = max(output_error(matrix, moments.hessian), 1e-30)
        each = (found.scaled(name, changes[0][here]), changes[1][here])
        before, after = (float(np.sqrt(output_error(change, moments.hessian) / energy)) for change in each)
        module = name.removesuffix(WEIGHT)
        found.solved[module] = solved.rows(first, len(matrix))
        found.errors.append(ProductError(module, before, after, moments.rows, chosen.solve is not method.solve))
        first += len(matrix)


def scale_stage(
    staged: StagedModel,
    index: int,
    inputs: StageInputs,
    products: StageProducts,
    method: Method,
    group: int,
    found: SolvedStage,
) -> None:
    """Chooses scales (AWQ, SmoothQuant) for the inputs of the stage's products, where a tensor before the products can
    be divided by them instead. The changed tensors are added to `found`."""
    folds = find_folds(staged.stages[index], products, tensor_users(staged.model.plain))
    together = [same for same in products.by_input() if same[0].input_key in folds]
    if not together or method.scales is None:
        return
    measured = measure_inputs(staged, index, inputs, together, found)
    shapes = {name: shape for product in products.products for name, shape in product.tensors.items()}
    for same in together:
        names = [name for product in same for name in product.tensors]
        whole = np.concatenate([tensor_values(staged.checkpoint, name) for name in names])
        fold, moments = folds[same[0].input_key], measured[same[0].input_key]
        scales = method.scales(whole, moments, method.layout, group)
        for name in names:
            found.multiply(name, shapes[name], None, scales)
        for name, added in fold.vectors.items():
            found.changed[name] = divided_vector(tensor_values(staged.checkpoint, name), added, scales)
        for name, first in fold.rows.items():
            divided = np.ones(shapes[name][0], np.float32)
            divided[first : first + len(scales)] /= scales
            found.multiply(name, shapes[name], divided, None)


def _not_finite(name: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"The inputs of {name} cannot be used for calibration.",
        why="On the calibration text they are infinite, NaN, or all 0.",
        fix="Try another --text; check that the model answers sensibly with --weights f32.",
    )
