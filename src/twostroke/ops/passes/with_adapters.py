"""with_adapters: the program with the calls by which low-rank adapters change named products (LoRA, Hu et al. 2021).

Each named tensor gets one call after the product that it is a part of, for any number of adapters. For each row, the
call adds the result of the row's adapter to the tensor's columns. Rows without an adapter stay as they are. A row's
bits do not depend on its neighbours' adapters. Where several tensors make one product (q, k and v), each named tensor
has a call of its own.

Apply this pass to the program that the model file traced, and fuse afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from msgspec import Struct

from twostroke.ops.passes.column_orders import untaken
from twostroke.ops.products.linear import Linear
from twostroke.ops.products.low_rank import RANK_STEP, LowRankBanks, low_rank
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import ADAPTERS, LOGIT_ADAPTERS, Size, Tensor, Value, Vector, Weight
from twostroke.types.errors import ConfigError

ROLE = "adapter"
ENDING = ".weight"


class AdapterSpec(Struct, frozen=True):
    """The adapters for which a program has room. count: how many can be loaded at a time. ranks: for each module, the
    largest rank that an adapter of the module may have.

    A module is the whole name of a product's tensor, without ".weight": "model.layers.0.mlp.down_proj".
    """

    count: int
    ranks: Mapping[str, int]


class AdaptedPart(LowRankBanks, frozen=True, eq=False, kw_only=True):
    """One tensor of a product, with the LoRA matrices of all adapters for this tensor."""

    tensor: Tensor

    @property
    def module(self) -> str:
        """The name of the tensor's module in the files of adapters, such as model.layers.0.self_attn.q_proj."""
        return module_of(self.tensor)


class AdaptedProgram(Struct, frozen=True, eq=False):
    """The program with adapters' calls, and the banks of LoRA matrices that these calls read."""

    program: Program
    parts: tuple[AdaptedPart, ...]


def module_of(tensor: Tensor) -> str:
    """Returns the name of the module whose matrix `tensor` is."""
    return tensor.name.removesuffix(ENDING)


def linear_tensors(program: Program) -> dict[str, Tensor]:
    """Returns the tensors of all products, by module. Adapters can change these tensors. The embedding is left out
    where it is also the head."""
    embedded = {part for call in program.calls if call.NAME == "embed" for part in _weight_parts(call)}
    linears = (call.weight for call in program.calls if isinstance(call, Linear))
    return {module_of(part): part for weight in linears for part in weight.parts if part not in embedded}


def with_adapters(program: Program, spec: AdapterSpec) -> AdaptedProgram:
    """Returns the program with a call after each product that adapters may change: it adds what each row's adapter
    computes. Without adapters the program stays the same.

    Raises ConfigError where a module is no product of the program.
    """
    if spec.count == 0:
        return AdaptedProgram(program, ())
    known = linear_tensors(program)
    unknown = [name for name in spec.ranks if name not in known]
    if unknown:
        raise unknown_modules(unknown, known)
    made: dict[Weight, tuple[AdaptedPart, ...]] = {}
    calls: list[Op] = []
    in_order = untaken(program)  # adapters use the column order of the checkpoint
    for call in program.calls:
        if not isinstance(call, Linear):
            calls.append(call)
            continue
        if call.weight not in made:
            made[call.weight] = tuple(_parts(call.weight, spec))
        calls += _adapted(call, in_order.get(call.x, call.x), made[call.weight])
    parts = tuple(part for each in made.values() for part in each)
    return AdaptedProgram(Program.of(tuple(calls), program.logits, program.given, program.kept), parts)


def unknown_modules(names: list[str], known: Mapping[str, Tensor]) -> ConfigError:
    """Returns the error for modules that are not products."""
    endings = sorted({name.rpartition(".")[2] for name in known})
    return ConfigError(
        f"Adapters change {', '.join(name[:100] for name in names[:3])}, which no product of this model is made of.",
        why="Its products are made of " + ", ".join(endings[:16]) + ".",
        fix="Use adapters that were trained for this model; those of experts and embeddings cannot be used.",
    )


def _adapted(call: Linear, x: Value, parts: tuple[AdaptedPart, ...]) -> Iterator[Op]:
    """Yields the product, then a call for each of `parts`, which adds the adapters' result to the product in place. x:
    the input of the product and of the adapters."""
    if not parts:
        yield call
        return
    adapters = ADAPTERS if call.out.rows is Size.TOKENS else LOGIT_ADAPTERS
    before = _same_memory(call.out)
    yield replace(call, out=before)
    for index, part in enumerate(parts):
        out = call.out if index == len(parts) - 1 else _same_memory(call.out)
        yield low_rank(out, before, x, part, adapters)
        before = out


def _same_memory(value: Value) -> Value:
    return Value(value.trace, value.rows, value.shape, value)


def _parts(weight: Weight, spec: AdapterSpec) -> Iterator[AdaptedPart]:
    """Yields an AdaptedPart for each tensor of the product's weight for which some adapter has matrices."""
    row = 0
    for index, tensor in enumerate(weight.parts):
        rank = spec.ranks.get(module_of(tensor), 0)
        if rank:
            room, key = -(-rank // RANK_STEP) * RANK_STEP, f"{weight.key}:{index}"
            down = Weight(f"{key}:down", ROLE, weight.columns, room, (), experts=spec.count)
            up = Weight(f"{key}:up", ROLE, tensor.length, room, (), experts=spec.count)
            ranks = Vector(f"{key}:ranks", spec.count, ())
            yield AdaptedPart(tensor=tensor, first_row=row, down=down, up=up, ranks=ranks)
        row += tensor.length


def _weight_parts(call: Op) -> Iterator[Tensor]:
    return (part for item in call.operands() if isinstance(item, Weight) for part in item.parts)
