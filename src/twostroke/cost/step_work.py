"""What one step computes and moves, part by part: a WorkTable multiplied by the step's counts.

The parts are those of `cost.shape.PartPrediction`: `weights` (products of the layers), `head` (logits), `attention`
(and scans: what reads K, V and states), and `other` (embedding rows, norms, rope, KV writes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from twostroke.cost.shape import Part
from twostroke.cost.work import Work
from twostroke.cost.work_table import WorkTable


class StepWork(Struct, frozen=True):
    """The FLOPs and bytes of one step, for each of its parts (see the module)."""

    weights: Work
    head: Work
    attention: Work
    other: Work

    @property
    def total(self) -> Work:
        """The FLOPs and bytes of the whole step."""
        return self.weights + self.head + self.attention + self.other


NOTHING = StepWork(Work(), Work(), Work(), Work())


class ChunkCounts(NamedTuple):
    """The counts of a sequence with more than one new row in a step. rows: its new tokens. flops: the FLOPs of its
    attention in all layers.

    pair_bytes: for each row, the bytes of K and V of all positions that the row sees, added up.
    """

    rows: int
    flops: int
    pair_bytes: int


class SegmentCounts(NamedTuple):
    """The numbers on which the work of a step depends, added up over its sequences. rows: the new tokens. logit_rows:
    the rows that need logits. decodes: how many sequences have one new row.

    decode_flops: the FLOPs of the attention of these sequences, in all layers. decode_bytes: the bytes of K and V that
    they read. chunk_bytes: the bytes of K and V that sequences with more rows read, each position once. adapters: the
    number of different adapters. adapted_rows: the number of rows that have an adapter.
    """

    rows: int
    logit_rows: int
    decodes: int
    decode_flops: int
    decode_bytes: int
    chunk_bytes: int
    chunks: tuple[ChunkCounts, ...]
    adapters: int = 0
    adapted_rows: int = 0

    @property
    def sequences(self) -> int:
        """How many sequences have a new row."""
        return self.decodes + len(self.chunks)

    @property
    def attention_flops(self) -> int:
        """The FLOPs of the attention of all rows."""
        return self.decode_flops + sum(chunk.flops for chunk in self.chunks)

    @property
    def kv_bytes(self) -> int:
        """The bytes of K and V that all sequences read."""
        return self.decode_bytes + self.chunk_bytes


def visible_positions(start: int, num_tokens: int, window: int) -> int:
    """Returns how many positions the rows at [start, start + num_tokens) see, added up over the rows. window: 0 when a
    row sees all positions before it."""
    end = start + num_tokens
    if window == 0 or end <= window:
        return num_tokens * (start + end + 1) // 2
    full = max(start, window - 1)  # positions from here on see `window`
    return (full - start) * (start + full + 1) // 2 + (end - full) * window


def kv_positions(start: int, num_tokens: int, window: int) -> int:
    """Returns how many cached positions the rows at [start, start + num_tokens) read, each position counted once.
    window: 0 when a row sees all positions before it."""
    end = start + num_tokens
    return min(end, window + num_tokens - 1) if window else end


def _seen_by_each(starts: Sequence[int], window: int) -> int:
    """Returns how many positions the single rows at `starts` see, added up over the rows."""
    return sum([min(start + 1, window) for start in starts]) if window else sum(starts) + len(starts)


def _with_adapters(counts: SegmentCounts, segments: Sequence[Part]) -> SegmentCounts:
    adapted = [segment for segment in segments if segment.adapter >= 0]
    different = len({segment.adapter for segment in adapted})
    return counts._replace(adapters=different, adapted_rows=sum(segment.num_tokens for segment in adapted))


class WorkCounter:
    """Counts the work of steps, for one model in one choice of formats. Counting a step takes microseconds."""

    def __init__(self, table: WorkTable) -> None:
        self.table = table
        self._seen = tuple((seen.window, seen.pair_flops, seen.position_bytes) for seen in table.seen)
        self._later_flops = sum(seen.later_flops for seen in table.seen)
        self._later_bytes = sum(seen.position_bytes for seen in table.seen if seen.later_flops)
        self._last: tuple[Sequence[Part], SegmentCounts] | None = None

    def step(self, segments: Sequence[Part]) -> StepWork:
        """Returns the work of a step that computes these parts of sequences. Without segments, all FLOPs and bytes are
        0."""
        return self.work(self.count(segments)) if segments else NOTHING

    def work(self, counts: SegmentCounts) -> StepWork:
        """Returns the FLOPs and bytes of a step with these counts."""
        return StepWork(
            self.weights(counts.rows) + self.adapters(counts),
            self.head(counts.logit_rows),
            self.attention(counts),
            self.other(counts),
        )

    def count(self, segments: Sequence[Part]) -> SegmentCounts:
        """Returns the numbers by which the work of a step with these segments follows from the WorkTable, in a quarter
        of a microsecond for each segment. The result for the latest `segments` is remembered, because several callers
        ask about each step's plan."""
        last = self._last  # another thread may set self._last meanwhile
        if last is not None and last[0] is segments:
            return last[1]
        found = self._counted(segments)
        if isinstance(segments, tuple):  # only a tuple is kept: other sequences may change, so they are counted again
            self._last = segments, found
        return found

    def _counted(self, segments: Sequence[Part]) -> SegmentCounts:
        rows = logit_rows = chunk_bytes = 0
        starts: list[int] = []  # the starts of segments with one new row
        chunks: list[ChunkCounts] = []
        seen = self._seen
        for segment in segments:
            start, num_tokens = segment.start, segment.num_tokens
            rows += num_tokens
            logit_rows += segment.logit_rows
            if num_tokens == 1:
                starts.append(start)
                continue
            later = segment.later
            flops, pair_bytes = self._later_flops * later, self._later_bytes * later
            for window, pair_flops, position_bytes in seen:
                pairs = visible_positions(start, num_tokens, window)
                flops += pair_flops * pairs
                pair_bytes += position_bytes * pairs
                chunk_bytes += position_bytes * kv_positions(start, num_tokens, window)
            chunks.append(ChunkCounts(num_tokens, flops, pair_bytes))
        flops, moved = self._decoding(starts)
        found = SegmentCounts(rows, logit_rows, len(starts), flops, moved, chunk_bytes, tuple(chunks))
        return found if self.table.adapters is None else _with_adapters(found, segments)

    def count_beside(self, starts: Sequence[int], segments: Sequence[Part]) -> SegmentCounts:
        """Returns what `count` would return for these segments and one decoding row at each position in `starts`."""
        found, decodes = self.count(segments), len(starts)
        flops, moved = self._decoding(starts)
        return SegmentCounts(
            found.rows + decodes,
            found.logit_rows + decodes,
            found.decodes + decodes,
            found.decode_flops + flops,
            found.decode_bytes + moved,
            found.chunk_bytes,
            found.chunks,
            found.adapters,
            found.adapted_rows,
        )

    def decode_counts(self, starts: Sequence[int], steps: int) -> Iterator[SegmentCounts]:
        """Yields what `count` would return for each of `steps` steps in which every sequence decodes. starts: the
        positions that the first step computes."""
        rows = len(starts)
        for flops, moved in self.decode_sums(starts, steps):
            yield SegmentCounts(rows, rows, rows, flops, moved, 0, ())

    def decode_sums(self, starts: Sequence[int], steps: int) -> Iterator[tuple[int, int]]:
        """Yields, for each of `steps` decode steps, the FLOPs of attention and the bytes that it reads. starts: the
        position of each sequence's token in the first of these steps."""
        flops, moved = self._decoding(starts)
        # A sequence sees one position more in each step, until it sees a whole window.
        more_flops = more_bytes = 0
        full: dict[int, tuple[int, int]] = {}
        for window, pair_flops, position_bytes in self._seen:
            for start in starts:
                if window and start + 1 >= window:
                    continue
                more_flops += pair_flops
                more_bytes += position_bytes
                if window:
                    before = full.get(window - start - 1, (0, 0))
                    full[window - start - 1] = before[0] + pair_flops, before[1] + position_bytes
        for step in range(1, steps + 1):
            yield flops, moved
            flops += more_flops
            moved += more_bytes
            if step in full:
                more_flops -= full[step][0]
                more_bytes -= full[step][1]

    def weights(self, rows: int) -> Work:
        """Returns the work of the products of every layer over `rows` rows. Weights are read once, and of the experts
        only those that rows choose."""
        table = self.table
        read = sum(int(bank.touched(rows) * bank.expert_bytes) for bank in table.banks)
        return table.layers_once + table.layers_row.times(rows) + Work(0, weight_bytes=read)

    def adapters(self, counts: SegmentCounts) -> Work:
        """Returns the work that adapters add to the products. Each adapter that a row has is read once."""
        found = self.table.adapters
        if found is None or not counts.adapters:
            return Work()
        return found.row.times(counts.adapted_rows) + Work(0, weight_bytes=counts.adapters * found.adapter_bytes)

    def head(self, logit_rows: int) -> Work:
        """Returns the work of the product with the head; none when no row needs logits."""
        return self.table.head_once + self.table.head_row.times(logit_rows) if logit_rows else Work()

    def attention(self, counts: SegmentCounts) -> Work:
        """Returns the work of attention and scans in all layers. Each sequence's K, V and states are read once."""
        moved = self.table.attention_row.times(counts.rows) + self.table.sequence.times(counts.sequences)
        return moved + Work(counts.attention_flops, kv_bytes=counts.kv_bytes)

    def other(self, counts: SegmentCounts) -> Work:
        """Returns the work of all other ops: embedding rows, norms, rope, KV writes, and further ops of the rows that
        need logits."""
        table = self.table
        found = table.other_once + table.other_row.times(counts.rows)
        if not counts.logit_rows:
            return found
        return found + table.selected_once + table.selected_row.times(counts.logit_rows)

    def _decoding(self, starts: Sequence[int]) -> tuple[int, int]:
        """Returns the decode_flops and decode_bytes of one new row at each position in `starts`."""
        flops = moved = 0
        for window, pair_flops, position_bytes in self._seen:
            seen = _seen_by_each(starts, window)
            flops += pair_flops * seen
            moved += position_bytes * seen
        return flops, moved
