"""Finds the matrices of a stage that are quantized, and those that stay in floats, with the reason.

A product is a matrix that `linear` reads for all rows of a step, or one expert's matrix of a bank that `experts` reads.
It can be quantized only if the checkpoint stores it as one or more whole tensors that nothing else reads. Products of
the same input share the measurement of this input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twostroke.ops.passes.cut import Stage
from twostroke.ops.products.experts import Experts
from twostroke.ops.products.linear import Linear
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Size, Tensor, Value, Weight
from twostroke.ops.quant.formats import KEPT_BYTES, KEPT_WIDE

WEIGHT = ".weight"
InputKey = tuple[Value | Weight, int, int]


@dataclass(frozen=True, eq=False, slots=True)
class Product:
    """A matrix that can be quantized. weight: the program's weight that has the matrix. tensors: the checkpoint's
    tensors that hold it, name -> (rows, columns). x: the value that it multiplies; an expert's matrix multiplies only
    some rows of it. expert: the expert's index in the bank; None for a matrix that all rows are multiplied by."""

    weight: Weight
    tensors: Mapping[str, tuple[int, int]]
    x: Value
    expert: int | None = None

    @property
    def input_key(self) -> InputKey:
        """A key that is equal for products with the same input: the same columns of the same rows."""
        if self.expert is not None:
            return self.weight, self.expert, self.weight.columns
        return self.x.root, self.x.offset, self.x.width


@dataclass(frozen=True, eq=False, slots=True)
class StageProducts:
    """The matrices of a stage. products: those that can be quantized, in the order of the calls. kept: modules whose
    matrices stay in floats, with the reason."""

    products: tuple[Product, ...]
    kept: Mapping[str, str]

    def by_input(self) -> list[tuple[Product, ...]]:
        """Returns the products grouped by their input, in the order of the calls."""
        found: dict[InputKey, list[Product]] = {}
        for product in self.products:
            found.setdefault(product.input_key, []).append(product)
        return [tuple(products) for products in found.values()]

    def in_turn(self) -> list[list[tuple[Product, ...]]]:
        """Divides the products into lists, one for each weight of the program, such as a bank of experts, in the order
        of the calls. One list is quantized after the other. In a list, products with the same input form one tuple."""
        found: dict[Weight, list[tuple[Product, ...]]] = {}
        for same in self.by_input():
            found.setdefault(same[0].weight, []).append(same)
        return list(found.values())


IN_STACKS = "its experts are stored in stacks"


def tensor_users(program: Program) -> Counter[str]:
    """Returns how many matrices and vectors of the program read each tensor, by its name."""
    found: Counter[str] = Counter()
    for weight in program.weights:
        found.update({part.name for part in (*weight.parts, *weight.bias)})
    for vector in program.vectors:
        found.update({part.name for part in vector.parts})
    return found


def stage_products(stage: Stage, program: Program, users: Counter[str]) -> StageProducts:
    """Returns the matrices of a stage that can be quantized, and the modules that stay in floats. program: the whole
    model's program. users: how many matrices and vectors read each tensor, from `tensor_users`."""
    readers = Counter(item for call in program.calls for item in call.operands() if isinstance(item, Weight))
    inputs = {call.weight: call for call in stage.program.calls if isinstance(call, Linear)}
    banks = {
        bank: call for call in stage.program.calls if isinstance(call, Experts) for bank in (call.gate_up, call.down)
    }
    products: list[Product] = []
    kept: dict[str, str] = {}
    for weight in stage.program.weights:
        if weight in banks:
            found = _experts(weight, banks[weight].x, users)
            products += found
            kept |= {} if found else dict.fromkeys(_modules(weight), IN_STACKS)
            continue
        call = inputs.get(weight)
        reason = "an op that is not a product of all rows reads it" if call is None else _reason(weight, users)
        if call is not None and not reason and (readers[weight] > 1 or call.x.rows is not Size.TOKENS):
            reason = "it makes the logits" if call.x.rows is not Size.TOKENS else "several calls read it"
        if reason or call is None:
            kept |= {module: reason for module in _modules(weight)}
        else:
            shapes = {part.name: (part.shape[0], part.shape[1]) for part in weight.parts}
            products.append(Product(weight, shapes, call.x))
    return StageProducts(tuple(products), kept)


def _experts(bank: Weight, x: Value, users: Counter[str]) -> list[Product]:
    """Returns a Product for each expert of a bank; an empty list where the checkpoint does not hold each expert's
    matrix in tensors of its own. x: the value from which the experts' rows are taken. users: the result of
    `tensor_users`."""
    each, rest = divmod(len(bank.parts), bank.experts)
    own = [part.name for part in bank.parts if _whole_rows(part) and users[part.name] == 1]
    if rest or len(own) != len(bank.parts):
        return []
    found = []
    for expert in range(bank.experts):
        parts = bank.parts[expert * each : (expert + 1) * each]
        found.append(Product(bank, {part.name: (part.shape[0], part.shape[1]) for part in parts}, x, expert))
    return found


def _reason(weight: Weight, users: Counter[str]) -> str:
    if weight.role in KEPT_WIDE or weight.role in KEPT_BYTES:
        return f"matrices of the role {weight.role} are never rounded to 4 bits"
    if not all(map(_whole_rows, weight.parts)):
        return "its tensors are stored transposed, or in stacks"
    covered = sum(part.length for part in weight.parts)
    if covered != sum({part.name: part.shape[0] for part in weight.parts}.values()):
        return "it is only a part of a tensor"
    if any(users[part.name] > 1 for part in weight.parts):
        return "another matrix reads the same tensor"
    return ""


def _whole_rows(part: Tensor) -> bool:
    return len(part.shape) == 2 and not part.transposed and part.matrix is None and part.columns is None


def _modules(weight: Weight) -> Iterator[str]:
    for part in weight.parts:
        yield part.name.removesuffix(WEIGHT)
