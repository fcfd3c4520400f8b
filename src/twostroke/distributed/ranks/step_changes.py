"""Turns a leader's plan into a frame for its members, and the frame back into the sequences of a member's step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.distributed.ranks.frames import RankRow, RankStep, TableChange
from twostroke.distributed.ranks.step_rows import placed_of, shown_of
from twostroke.runner.images.step_images import NO_IMAGES, StepImages
from twostroke.types.plan import Plan

Tables = Sequence[Sequence[int]]


class StepEncoder:
    """Makes the leader's frames from plans. It keeps the last page tables, so that a frame holds only their changes."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, list[list[int]]]] = {}

    def step(self, plan: Plan, images: StepImages = NO_IMAGES) -> RankStep:
        """Returns the plan as a frame, with the changes in its page tables. images: what images add to its step."""
        rows: list[RankRow] = []
        now: dict[str, tuple[int, list[list[int]]]] = {}
        for place, each in enumerate(plan.sequences):
            name = each.request.request_id
            before, known = self._before.get(name, (-1, [[] for _ in each.tables]))
            tables = [list(table) for table in each.tables]
            now[name] = (place, tables)
            changes = [_changes(old, new) for old, new in zip(known, tables, strict=True)]
            asked = (each.sampled_rows, each.state_slot, each.second_text)
            rows.append(RankRow(before, each.start, list(each.token_ids), *asked, changes))
        self._before = now
        return RankStep(rows, plan.state_copies, plan.page_copies, shown_of(images), placed_of(images))


def _changes(old: list[int], new: list[int]) -> TableChange:
    if old == new[: len(old)]:
        return TableChange(len(old), new[len(old) :])
    return TableChange(0, new)


@dataclass(frozen=True, slots=True)
class DecodedSequence:
    """One sequence of a step in a member. Satisfies `runner.step_inputs.StepRow`."""

    start: int
    token_ids: Sequence[int]
    sampled_rows: int
    state_slot: int
    second_text: int | None
    tables: Tables
    adapter: int = -1

    @property
    def num_tokens(self) -> int:
        """The number of rows of this sequence in the step."""
        return len(self.token_ids)


class StepDecoder:
    """Reads the leader's frames in a member. It keeps the last page tables and applies each frame's changes to them."""

    def __init__(self) -> None:
        self._before: list[Tables] = []

    def sequences(self, step: RankStep) -> list[DecodedSequence]:
        """Returns the sequences of the step, with whole page tables. Raises ValueError where the step holds the changes
        of a page table that the step before did not have."""
        found: list[DecodedSequence] = []
        for row in step.rows:
            if not -1 <= row.before < len(self._before):
                raise ValueError(f"a step that builds on place {row.before} of {len(self._before)}")
            known = self._before[row.before] if row.before >= 0 else [[]] * len(row.tables)
            tables = [[*old[: change.kept], *change.pages] for old, change in zip(known, row.tables, strict=True)]
            asked = (row.sampled_rows, row.state_slot, row.second_text)
            found.append(DecodedSequence(row.start, row.token_ids, *asked, tables))
        self._before = [each.tables for each in found]
        return found
