"""with_given_rows: the program whose embedding rows may be replaced by rows that are given before the step."""

from __future__ import annotations

from dataclasses import replace

from twostroke.ops.products.embed import Embed
from twostroke.ops.program.check import check
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import ROW_MARKS, TOKEN_IDS, Value
from twostroke.ops.rows.replace_rows import ReplaceRows


def with_given_rows(model: Model) -> Model:
    """The model with a place for given rows in both forms of its program. Raises ValueError without an embedding."""
    return replace(model, plain=_placed(model.plain), program=_placed(model.program))


def given_rows(program: Program) -> Value | None:
    """The value that takes given rows; None where the program has no place for them."""
    return next((call.given for call in program.body if isinstance(call, ReplaceRows)), None)


def _placed(program: Program) -> Program:
    calls: list[Op] = []
    given = None
    for call in program.calls:
        if given is None and isinstance(call, Embed) and call.token_ids == TOKEN_IDS:
            out = call.out
            embedded, given = (Value(out.trace, out.rows, out.shape) for _ in range(2))
            calls += [Embed(embedded, call.table, call.token_ids), ReplaceRows(out, embedded, given, ROW_MARKS)]
        else:
            calls.append(call)
    if given is None:
        raise ValueError("a program without an embedding has no rows to replace")
    made = Program.of(tuple(calls), program.logits, (*program.given, given), program.kept)
    check(made)
    return made
