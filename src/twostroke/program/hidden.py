"""The last hidden states of a program: what its output matrix reads, and what its head takes from the body.

Knows: calls and operands.
Must not know: ops by name, who reads hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.program.op import Op
from twostroke.program.program import Program
from twostroke.program.values import Size, Value, Weight


@dataclass(frozen=True, eq=False, slots=True)
class LastHidden:
    """rows: the last hidden states behind the final norm, of the rows that need logits. matrix: makes logits of them.

    body: the residual that the head takes its rows from, of all rows of the step; it stays valid until the next step.
    norm: the only call between both; None where there are others.
    """

    rows: Value
    matrix: Weight
    body: Value
    norm: Op | None


def last_hidden(program: Program) -> LastHidden:
    """Found by walking the head. Raises ValueError for a program without a head."""
    body = next((value for call in program.head for value in call.reads() if value.rows is Size.TOKENS), None)
    for index, call in reversed(list(enumerate(program.head))):
        matrix = next((item for item in call.operands() if isinstance(item, Weight)), None)
        if matrix is not None and body is not None:
            between = program.head[1:index]
            return LastHidden(_read_by(call), matrix, body, between[0] if len(between) == 1 else None)
    raise ValueError("the program has no head")


def with_hidden_kept(program: Program) -> Program:
    """The same program; the last hidden states may be read after a step."""
    return replace(program, kept=(*program.kept, last_hidden(program).rows))


def _read_by(call: Op) -> Value:
    return next(value for value in call.reads() if value.rows is Size.LOGIT_ROWS)
