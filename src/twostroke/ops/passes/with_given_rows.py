"""with_given_rows: the program whose embedding rows may be replaced by rows that are given before the step, such as
those that an encoder makes of an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import Struct, structs

from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.rope import Rotate
from twostroke.ops.attention.span_attention import with_spans
from twostroke.ops.products.embed import Embed
from twostroke.ops.program.check import check
from twostroke.ops.program.hidden import last_hidden, layer_input
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.substitute import Substitution
from twostroke.ops.program.values import POSITIONS, ROW_MARKS, ROW_NUMBERS, TOKEN_IDS, RowTurns, Value
from twostroke.ops.rows.expressions import is_scaled
from twostroke.ops.rows.replace_rows import ReplaceRows
from twostroke.types.images import SpanLayers

AxesOfPairs = Callable[[int], tuple[int, ...]]


class GivenRows(Struct, frozen=True):
    """How the rows of an image (given rows) enter a language model. They replace the embeddings of the tokens that
    stand for the image.

    scaled: whether the factor of the embedding is applied to them too. added: the layers after which further given rows
    are added to the residual at the image's tokens (DeepStack). axes: M-RoPE: returns for each rotary pair which of
    time, height and width rotates it; None where plain positions do. spans: the layers in which the rows of an image
    see each other.
    """

    scaled: bool = True
    added: tuple[int, ...] = ()
    axes: AxesOfPairs | None = None
    spans: SpanLayers = SpanLayers.NONE


REPLACED = GivenRows()
"""The usual way: an image's rows replace rows of the embedding, and nothing else changes."""


def with_given_rows(model: Model, how: GivenRows = REPLACED) -> Model:
    """Returns the model whose programs (`plain`, and `program` with fused calls) have the rows of images as further
    inputs. how: where in the program these rows are used. Raises ValueError for a program without an embedding."""

    def made(program: Program) -> Program:
        program = _placed(program, how.scaled)
        for layer in how.added:
            program = _added(program, layer, model.num_layers)
        program = program if how.axes is None else _turned(program, how.axes)
        program = program if how.spans is SpanLayers.NONE else _seeing(program, how.spans)
        check(program)
        return program

    return replace(model, plain=made(model.plain), program=made(model.program))


def given_rows(program: Program) -> tuple[Value, ...]:
    """Returns the inputs of a program that hold rows of images: first those that replace embeddings, then those that
    are added after a layer (DeepStack), in the order of layers. The tuple is empty for a program without such
    inputs."""
    return tuple(call.given for call in program.body if isinstance(call, ReplaceRows))


def taken_rows(whole: Program, own: Program) -> tuple[Value | None, ...]:
    """Returns for each input of `whole` that holds rows of images the same input of `own`, one process's part of the
    program; None where another process has this input."""
    values, found = given_rows(whole), given_rows(own)
    return found if len(found) == len(values) else tuple(each if each in found else None for each in values)


def _placed(program: Program, scaled: bool) -> Program:
    """Returns the program with an input of rows that replace embeddings, at the rows that are marked before the
    step."""
    for index, call in enumerate(program.body):
        if isinstance(call, Embed) and call.token_ids == TOKEN_IDS:
            after = program.body[index + 1]
            if not scaled and is_scaled(after) and after.result is not None and after.result.base is call.out:
                return _inserted(program, index + 2, after.result)
            return _inserted(program, index + 1, call.out)
    raise ValueError("a program without an embedding has no rows to replace")


def _added(program: Program, layer: int, num_layers: int) -> Program:
    """Returns the program with an input of further image rows, which are added to the residual after a layer
    (DeepStack)."""
    if layer + 1 < num_layers:
        return _inserted(program, *layer_input(program, layer + 1), added=1)
    return _inserted(program, len(program.body), last_hidden(program).body, added=1)


def _inserted(program: Program, index: int, x: Value, added: int = 0) -> Program:
    """Returns the program with a new input, whose rows replace marked rows of `x` from call `index` on, or are added to
    them where `added` is 1."""
    given, out = Value(x.trace, x.rows, x.shape), x.written()
    later = Substitution(x, out)
    new = ReplaceRows(out, x, given, ROW_MARKS, added)
    calls = (*program.calls[:index], new, *map(later.call, program.calls[index:]))
    return Program.of(calls, later.value(program.logits), (*program.given, given), program.kept)


def _seeing(program: Program, spans: SpanLayers) -> Program:
    """Returns the program in which attention lets the rows of one image see each other."""
    calls = [
        with_spans(call) if isinstance(call, Attention) and (call.window or spans is SpanLayers.ALL) else call
        for call in program.calls
    ]
    return Program.of(tuple(calls), program.logits, program.given, program.kept)


def _turned(program: Program, axes: AxesOfPairs) -> Program:
    """Returns the program in which rotations use M-RoPE: each rotary pair is rotated by a row's time, height or width,
    in place of its position."""
    calls: list[Op] = []
    for call in program.calls:
        if isinstance(call, Rotate) and call.positions == POSITIONS:
            pairs = call.table.spec.rotary_dim // 2
            turns = RowTurns(axes(pairs), tuple(range(pairs)))
            call = replace(call, table=structs.replace(call.table, turns=turns), positions=ROW_NUMBERS)
        calls.append(call)
    return Program.of(tuple(calls), program.logits, program.given, program.kept)
