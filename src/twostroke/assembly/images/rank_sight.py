"""Tells the members of a group where image rows come into their parts of a model. They read no file of the encoder."""

from __future__ import annotations

from twostroke.distributed.ranks.frames import RankSight
from twostroke.ops.passes.division import Division
from twostroke.ops.passes.with_given_rows import GivenRows, taken_rows, with_given_rows
from twostroke.ops.program.model import Model
from twostroke.ops.program.program import Program
from twostroke.types.errors import BackendError
from twostroke.types.images import SpanLayers


def sight_frame(how: GivenRows, filler: int | None, program: Program) -> RankSight:
    """Returns the message that tells a member how image rows enter the model. filler: the token id that the program
    gets at image rows; None for the one in the prompt. program: the program with an input for image rows."""
    turns = (rope.turns.axes for rope in program.ropes if rope.turns is not None)
    return RankSight(how.scaled, how.added, {len(axes): axes for axes in turns}, how.spans.name, filler)


def seeing_model(spec: Model, sight: RankSight | None) -> Model:
    """Returns a member's model with an input for image rows. It is the same model as the leader's. Raises BackendError
    where the name in `sight.spans` is unknown."""
    if sight is None:
        return spec
    if sight.spans not in SpanLayers.__members__:
        raise BackendError(
            f"The leader's images see each other in layers {sight.spans!r}.", why="This version knows no such layers."
        )
    axes = sight.axes.__getitem__ if sight.axes else None
    return with_given_rows(spec, GivenRows(sight.scaled, sight.added, axes, SpanLayers[sight.spans]))


def takers_of(division: Division, spec: Model) -> tuple[tuple[int, ...], ...]:
    """Returns which members need each input of image rows: for each such input of the program, the members whose part
    of the model has it. A member is given by its index in `division.members`."""
    taken = [taken_rows(spec.program, division.part(spec, rank).program) for rank in division.members]
    pieces = len(taken_rows(spec.program, spec.program))
    return tuple(
        tuple(place for place, values in enumerate(taken) if values[piece] is not None) for piece in range(pieces)
    )
