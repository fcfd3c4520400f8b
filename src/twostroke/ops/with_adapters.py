"""with_adapters: the program with what low-rank adapters add to named products (LoRA, Hu et al. 2021).

A product that is named gets one call behind it, whatever the number of adapters: it adds to each row what the adapter
of that row adds, and leaves rows without an adapter as they are. Rows beside each other with one adapter are multiplied
together, and a row's bits do not depend on its neighbours' adapters. Where several tensors make one product (q, k and
v), their adapters are one matrix of all ranks, with zeros where a rank is not of a tensor.

Take the program as its model file says it and fuse afterwards. Nothing loads adapters or gives requests one yet: the
matrices are for the caller to fill, and the step's `adapters` say -1 for every row until they are written.

Knows: linear, low_rank, names of tensors.
Must not know: folders of adapters, requests, arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.ops.column_orders import untaken
from twostroke.ops.linear import Linear
from twostroke.ops.low_rank import low_rank
from twostroke.program.program import Program
from twostroke.program.values import ADAPTERS, Tensor, Weight
from twostroke.types.errors import ConfigError

ROLE = "adapter"


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """count: of adapters. rank: the largest of them; smaller ones are filled up with zeros.

    modules: the last words of the names of linears, as "q_proj", or whole names, as "model.layers.0.mlp.down_proj".
    """

    count: int
    rank: int
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdaptedPart:
    """What of an adapted product is one linear's: rows [first_row, first_row + rows), ranks from first_rank on."""

    module: str
    first_row: int
    rows: int
    first_rank: int


@dataclass(frozen=True, eq=False, slots=True)
class AdaptedProduct:
    """down: a bank of (all ranks, columns) matrices. up: a bank of (rows, all ranks), factors multiplied in."""

    weight: Weight
    down: Weight
    up: Weight
    parts: tuple[AdaptedPart, ...]


@dataclass(frozen=True, eq=False, slots=True)
class AdaptedProgram:
    """The program, and the matrices that it reads beside those of the model."""

    program: Program
    products: tuple[AdaptedProduct, ...]


def with_adapters(program: Program, spec: AdapterSpec) -> AdaptedProgram:
    """Add the calls; without adapters the program is what it was.

    Raises ConfigError where a module is no product of the program.
    """
    if spec.count == 0:
        return AdaptedProgram(program, ())
    found: dict[Weight, AdaptedProduct] = {}
    met: set[str] = set()
    calls = []
    in_order = untaken(program)  # adapters know the columns as the checkpoint has them
    for call in program.calls:
        parts = tuple(_parts(call.weight, spec, met)) if isinstance(call, Linear) else ()
        if not isinstance(call, Linear) or not parts:
            calls.append(call)
            continue
        product = found.setdefault(call.weight, _product(call.weight, spec, parts))
        before = call.out.fresh()
        calls.append(Linear(before, call.x, call.weight))
        calls.append(low_rank(call.out, before, in_order.get(call.x, call.x), product.down, product.up, ADAPTERS))
    unknown = [name for name in spec.modules if name not in met]
    if unknown:
        known = sorted({_module(part.name).rpartition(".")[2] for part in _linear_tensors(program)})
        raise ConfigError(
            f"Adapters change {', '.join(unknown[:3])}, which no product of this model is made of.",
            why="Its products are made of " + ", ".join(known[:16]) + ".",
            fix="Use adapters that were trained for this model; those of experts and embeddings cannot be used.",
        )
    return AdaptedProgram(Program.of(tuple(calls), program.logits), tuple(found.values()))


def _parts(weight: Weight, spec: AdapterSpec, met: set[str]) -> Iterator[AdaptedPart]:
    """The tensors of a product that adapters change. met: takes the names that were found."""
    row = rank = 0
    for tensor in weight.parts:
        module = _module(tensor.name)
        named = {module, module.rpartition(".")[2]} & set(spec.modules)
        if named:
            met |= named
            yield AdaptedPart(module, row, tensor.length, rank)
            rank += spec.rank
        row += tensor.length


def _product(weight: Weight, spec: AdapterSpec, parts: tuple[AdaptedPart, ...]) -> AdaptedProduct:
    ranks = spec.rank * len(parts)
    down = Weight(f"{weight.key}:down", ROLE, ranks, weight.columns, (), experts=spec.count)
    up = Weight(f"{weight.key}:up", ROLE, weight.rows, ranks, (), experts=spec.count)
    return AdaptedProduct(weight, down, up, parts)


def _module(tensor: str) -> str:
    return tensor.removesuffix(".weight")


def _linear_tensors(program: Program) -> Iterator[Tensor]:
    return (part for call in program.calls if isinstance(call, Linear) for part in call.weight.parts)
