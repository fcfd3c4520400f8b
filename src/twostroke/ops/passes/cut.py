"""cut: the program of one of several stages, each of which has consecutive layers (pipeline parallel).

Stages follow one another. One value goes from each stage to the next, unchanged, so the bits are those of one process.
A value that is given before a step is given to the stages whose calls read it. A program can be cut wherever the
following calls read only one value of the earlier calls, and no cache is used on both sides. These places are between
layers, and within a layer between attention and feed-forward. The cuts are chosen so that the largest stage, counted in
weights, is as small as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.check import check
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op, OpPart
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Cache, Size, Value, Weight
from twostroke.ops.ranks.hand_over import HandOver
from twostroke.ops.ranks.receive import Receive
from twostroke.types.errors import ConfigError


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """Consecutive calls of a program, which one process computes. received: the value that this stage takes from the
    stage before; None for the first stage."""

    program: Program
    received: Value | None

    @property
    def result(self) -> Value:
        """The value that this stage sends to the next one; for the last stage the logits."""
        return self.program.logits


def cut_model(model: Model, stage: int, stages: int) -> Model:
    """Returns a stage's part of a model. Each stage but the last ends with a call that sends its value on. Raises
    ConfigError as `cut` does."""
    found = cut(model.program, stage, stages)
    program = found.program
    if stage < stages - 1:
        program = Program.of((*program.calls, HandOver(found.result.flat())), found.result, program.given)
    check(program)
    whole = cache_groups(model.program).pages
    own = [group.window for group in cache_groups(program).pages]
    groups = tuple(index for index, group in enumerate(whole) if group.window in own)
    return replace(model, plain=program, program=program, part=f"stage {stage} of {stages}", groups=groups)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place where a program can be divided: before call `index`. value: the only value that crosses the place:
    earlier calls make it, and later calls read it."""

    index: int
    value: Value


def cut(program: Program, stage: int, stages: int) -> Stage:
    """Returns stage number `stage` of `stages`. With one stage, this is the whole program.

    Raises ConfigError where the program has too few places to cut.
    """
    if not 0 <= stage < stages:
        raise ValueError(f"there is no stage {stage} of {stages}")
    cuts = _cuts(program)
    if stages > len(cuts) + 1:
        raise ConfigError(
            f"This model cannot be cut in {stages} stages.",
            why=f"There are {len(cuts)} places between its calls where one value alone goes on.",
            fix=f"Use at most {len(cuts) + 1}.",
        )
    edges = _evenly(program, cuts, stages)
    return _stage(program, edges[stage - 1] if stage else None, edges[stage] if stage < stages - 1 else None)


def smallest_stages(program: Program) -> tuple[Stage, ...]:
    """Returns the smallest possible stages, in order, each between two places where the program can be cut. Most of
    them are half layers."""
    edges = [None, *_cuts(program), None]
    return tuple(_stage(program, begin, end) for begin, end in zip(edges, edges[1:], strict=False))


def _stage(program: Program, begin: _Cut | None, end: _Cut | None) -> Stage:
    calls = program.calls[begin.index if begin else 0 : end.index if end else None]
    received: tuple[Op, ...] = (Receive(begin.value),) if begin else ()
    read = {value.root for call in calls for value in call.reads()}
    given = tuple(value for value in program.given if value in read)
    own = Program.of((*received, *calls), end.value if end else program.logits, given)
    return Stage(own, begin.value if begin else None)


def _cuts(program: Program) -> list[_Cut]:
    """Returns all places where the body can be divided: the later calls read only one value of the earlier calls, and
    read it whole. No cache is used on both sides."""
    last_read, last_use = _last_reads(program), _last_uses(program)
    newest: dict[Value, Value] = {}
    used: set[Cache] = set()
    found = []
    for index, call in enumerate(program.body[:-1]):
        used |= {item for item in call.operands() if isinstance(item, Cache)}
        if call.result is not None:
            newest[call.result.root] = call.result
        alive = [root for root in newest if last_read.get(root, -1) > index]
        if len(alive) == 1 and all(last_use[cache] <= index for cache in used):
            value = newest[alive[0]]
            if (value.offset, value.width) == (0, alive[0].width) and value.rows is Size.TOKENS:
                found.append(_Cut(index + 1, value))
    return found


def _last_reads(program: Program) -> dict[Value, int]:
    found = {value.root: index for index, call in enumerate(program.calls) for value in call.reads()}
    return {**found, program.logits.root: len(program.calls)}


def _last_uses(program: Program) -> dict[Cache, int]:
    return {
        item: index for index, call in enumerate(program.calls) for item in call.operands() if isinstance(item, Cache)
    }


def _evenly(program: Program, cuts: Sequence[_Cut], stages: int) -> list[_Cut]:
    """Returns the cuts with which the largest stage is as small as possible. A stage's size is the number of elements
    of the weights that its products read."""
    sizes = [0]
    for call in program.calls:
        weights = {item for item in call.operands() if isinstance(item, Weight)} if call.PART is OpPart.PRODUCT else ()
        sizes.append(sizes[-1] + sum(weight.elements for weight in weights))
    ends = [sizes[each.index] for each in cuts]

    @cache
    def best(first: int, done: int, left: int) -> tuple[int, tuple[int, ...]]:
        """Divides the calls after a cut into the last `left` stages, so that the largest of these stages is as small as
        possible. Returns the size of this stage and the indices of the chosen cuts. first: the index of the first cut
        that may be chosen. done: the number of elements of all weights before these calls."""
        if left == 1:
            return sizes[-1] - done, ()
        choices = []
        for index in range(first, len(cuts) - left + 2):
            largest, rest = best(index + 1, ends[index], left - 1)
            choices.append((max(ends[index] - done, largest), (index, *rest)))
        return min(choices)

    return [cuts[index] for index in best(0, 0, stages)[1]]
