"""with_given_rows: the program whose embedding rows may be replaced by rows that are given before the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import structs

from twostroke.ops.attention.rope import Rotate
from twostroke.ops.products.embed import Embed
from twostroke.ops.program.check import check
from twostroke.ops.program.hidden import last_hidden, layer_input
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.substitute import Substitution
from twostroke.ops.program.values import POSITIONS, ROW_MARKS, ROW_NUMBERS, TOKEN_IDS, RowTurns, Value
from twostroke.ops.rows.replace_rows import ReplaceRows


AxesOfPairs = Callable[[int], tuple[int, ...]]


def with_given_rows(model: Model, added: Sequence[int] = (), axes: AxesOfPairs | None = None) -> Model:
    """The model with a place for given rows in both forms of its program.

    added: layers after which further given rows are added to the marked rows. axes: by the number of pairs of a head,
    which of a row's three places turns each; None where positions do. Raises ValueError without an embedding.
    """

    def made(program: Program) -> Program:
        program = _placed(program)
        for layer in added:
            program = _added(program, layer, model.num_layers)
        program = _turned(program, axes) if axes else program
        check(program)
        return program

    return replace(model, plain=made(model.plain), program=made(model.program))


def given_rows(program: Program) -> tuple[Value, ...]:
    """The values that take given rows, in the order of layers; none where the program has no place for them."""
    return tuple(call.given for call in program.body if isinstance(call, ReplaceRows))


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
    return Program.of(tuple(calls), program.logits, (*program.given, given), program.kept)


def _added(program: Program, layer: int, num_layers: int) -> Program:
    """Rows that are given are added to the residual after a layer."""
    if layer + 1 < num_layers:
        index, x = layer_input(program, layer + 1)
    else:
        index, x = len(program.body), last_hidden(program).body
    given, out = Value(x.trace, x.rows, x.shape), x.written()
    later = Substitution(x, out)
    calls = (*program.calls[:index], ReplaceRows(out, x, given, ROW_MARKS, 1), *map(later.call, program.calls[index:]))
    return Program.of(calls, program.logits, (*program.given, given), program.kept)


def _turned(program: Program, axes: AxesOfPairs) -> Program:
    """Rotations by position become rotations by the places of a row."""
    calls: list[Op] = []
    for call in program.calls:
        if isinstance(call, Rotate) and call.positions == POSITIONS:
            pairs = call.table.spec.rotary_dim // 2
            turns = RowTurns(axes(pairs), tuple(range(pairs)))
            call = replace(call, table=structs.replace(call.table, turns=turns), positions=ROW_NUMBERS)
        calls.append(call)
    return Program.of(tuple(calls), program.logits, program.given, program.kept)
