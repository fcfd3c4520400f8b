"""Programs whose head does not make logits of the whole vocabulary.

    features   the rows that the last product would read: what an embedding is made of
    classes    these rows times a matrix of a classifier
    chosen     logits of a few tokens alone, of the same matrix as all logits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twostroke.ops.products.linear import Linear
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import HeadRows, Size, Tensor, Weight
from twostroke.types.errors import UnsupportedModel


def features(program: Program) -> Program:
    """Returns the program without the product that makes the logits, and without the calls after that product. No call
    of the program may be fused yet."""
    index, last = _last_product(program)
    if last.x.rows is not Size.LOGIT_ROWS:
        raise UnsupportedModel(
            "This architecture cannot make embeddings yet.", why="Its head is more than a norm and a product."
        )
    return Program.of(program.calls[:index], last.x)


def classes(program: Program, name: str, count: int, *, bias: bool = False) -> Program:
    """Returns the program that multiplies the rows of `features` by the matrix `name` (count, width). bias: whether a
    bias is added."""
    base = features(program)
    width = base.logits.width
    part, biases = Tensor(f"{name}.weight", (count, width)), (Tensor(f"{name}.bias", (count,)),)
    weight = Weight(f"{name}:classes", "classes", count, width, (part,), biases if bias else ())
    return _with_product(base, weight)


def chosen(program: Program, token_ids: Sequence[int]) -> Program:
    """Returns the program that makes the logits of `token_ids` alone, in this order. Raises UnsupportedModel where
    calls after the product change the logits."""
    index, last = _last_product(program)
    if index + 1 != len(program.calls):
        raise UnsupportedModel(
            "This architecture cannot score by two tokens yet.", why="Its logits are changed after the last product."
        )
    parts, bias = last.weight.parts, last.weight.bias
    if len(parts) != 1 or parts[0].order is not None or parts[0].transposed:
        raise UnsupportedModel("This architecture cannot score by two tokens yet.", why="Its head has several tensors.")
    rows = tuple(replace(parts[0], order=HeadRows(1, 0, 1, token)) for token in token_ids)
    biases = tuple(replace(bias[0], order=HeadRows(1, 0, 1, token)) for token in token_ids) if bias else ()
    key = f"{parts[0].name.removesuffix('.weight')}:chosen"
    weight = Weight(key, "classes", len(token_ids), last.weight.columns, rows, biases)
    return _with_product(features(program), weight)


def _last_product(program: Program) -> tuple[int, Linear]:
    for index in range(len(program.calls) - 1, -1, -1):
        call = program.calls[index]
        if isinstance(call, Linear):
            return index, call
    raise ValueError("the program has no products")


def _with_product(base: Program, weight: Weight) -> Program:
    out = base.logits.fresh(weight.rows)
    calls: tuple[Op, ...] = (*base.calls, Linear(out, base.logits, weight))
    return Program.of(calls, out)
