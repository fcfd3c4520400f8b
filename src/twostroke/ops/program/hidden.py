"""Finds hidden states in a program: the last ones, from which the output matrix makes logits, and the residuals that
enter a layer. The body is the calls for all rows of a step, and the head the calls for the rows that need logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Size, Value, Vector, Weight


@dataclass(frozen=True, eq=False, slots=True)
class LastHidden:
    """The values with the last hidden states of a program. rows: those after the final norm, of the rows that need
    logits. matrix: the weight that makes logits from them. body: the residual of all rows of the step, which stays
    valid until the next step; the head takes its rows from it. norm: the call of the final norm, where the head has one
    call between taking rows and the product; else None."""

    rows: Value
    matrix: Weight
    body: Value
    norm: Op | None


def last_hidden(program: Program) -> LastHidden:
    """Finds the last hidden states by walking the head. Raises ValueError for a program without a head."""
    body = next((value for call in program.head for value in call.reads() if value.rows is Size.TOKENS), None)
    for index, call in reversed(list(enumerate(program.head))):
        matrix = None if call.OWN_ROWS else next((item for item in call.operands() if isinstance(item, Weight)), None)
        if matrix is not None and body is not None:
            between = program.head[1:index]
            return LastHidden(_read_by(call), matrix, body, between[0] if len(between) == 1 else None)
    raise ValueError("the program has no head")


def with_hidden_kept(program: Program) -> Program:
    """Returns the program with its last hidden states kept, so that they may be read after a step."""
    return replace(program, kept=(*program.kept, last_hidden(program).rows))


def with_layer_inputs(
    program: Program, layers: Sequence[int], copy: Callable[[Value], Op], begin: str = "model.layers."
) -> Program:
    """Returns the program with copies of the residuals that enter these layers. The copies are kept, in the order of
    `layers`, and may be read after a step.

    copy: returns a call whose result is a copy of a value. begin: the beginning of the names of a layer's tensors.
    Raises ValueError where no call reads a tensor with the layer's names.
    """
    kept = []
    for layer in layers:
        index, residual = layer_input(program, layer, begin)
        made = copy(residual)
        body = (*program.body[:index], made, *program.body[index:])
        program = replace(program, body=body)
        kept += [made.result] if made.result is not None else []
    return Program.of(program.calls, program.logits, program.given, (*program.kept, *kept))


def layer_input(program: Program, layer: int, begin: str = "model.layers.") -> tuple[int, Value]:
    """Returns the index of a layer's first call in the body, and the residual that this call reads. begin: see
    `with_layer_inputs`. Raises ValueError as that function does."""
    prefix = f"{begin}{layer}."
    first = next((index for index, call in enumerate(program.body) if _reads_of(call, prefix)), None)
    if first is None:
        raise ValueError(f"no call reads a tensor of {prefix}")
    return first, next(value for value in program.body[first].reads() if value.rows is Size.TOKENS)


def _reads_of(call: Op, prefix: str) -> bool:
    return any(
        part.name.startswith(prefix)
        for item in call.operands()
        if isinstance(item, Weight | Vector)
        for part in item.parts
    )


def _read_by(call: Op) -> Value:
    return next(value for value in call.reads() if value.rows is Size.LOGIT_ROWS)
