"""Keeps the last steps compactly: consecutive steps of one batch that only decodes are one run.

    a run has the rows of its first step; its step j has the same sequences, each j positions later, and no preemption

Numbers are packed into bytes. As Python objects, a step of eight sequences took 1.8 KB, and the garbage collector had
13 objects to visit.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct, field

from twostroke.cost.history.record import SequenceRecord, StepRecord
from twostroke.cost.history.step_times import StepTime, StepTimes
from twostroke.cost.shape import Segment, StepCost, StepPrediction
from twostroke.cost.work import Work
from twostroke.types.plan import PlannedSequence, Role
from twostroke.types.recorded.exchange_spent import ExchangeSpent
from twostroke.types.result import StepResult

LEAST_DELAY_S = 20e-6
"""A shorter wait of the step's thread for a processor is not counted: the operating system's scheduler takes that long
even on an idle machine."""

MAX_RUN_STEPS = 1024
DROPPED_SHARE = 1 / 32
"""The share of the kept steps that is dropped at a time. It is small, so that memory use stays even."""


class Row(NamedTuple):
    """What one sequence computed in a recorded step."""

    request_id: str
    start: int
    num_tokens: int
    samples: bool
    num_output_tokens: int
    num_recomputed: int
    scored: int
    drafts: int
    accepted: int
    role: Role
    adapter: int = -1

    @classmethod
    def of(cls, planned: PlannedSequence, num_recomputed: int, result: StepResult) -> Row:
        """Returns what the history records of one sequence in a step. num_recomputed: the number of its tokens
        that were computed before. result: the result of the step."""
        request_id, start, num_tokens = planned.request.request_id, planned.start, planned.num_tokens
        made, scored, drafts = planned.num_output_tokens, len(planned.scores), len(planned.draft_token_ids)
        accepted = max(0, len(result.sampled.get(request_id, ())) - 1) if drafts else 0
        counts = (made, num_recomputed, scored, drafts, accepted)
        return cls(request_id, start, num_tokens, planned.samples, *counts, planned.role, planned.request.adapter)

    @property
    def decoded(self) -> int:
        """The tokens that a decoding sequence wrote: one, and the guesses that were right. 0 for a part of a prompt."""
        return 1 + self.accepted if self.role is Role.DECODE else 0

    def segment(self, offset: int = 0) -> Segment:
        """Returns what this sequence computes in a step `offset` steps later, as a StepCost takes it. Between the two
        steps, every step must have the same sequences."""
        start = self.start + offset
        return Segment(start, self.num_tokens, self.samples, self.role, self.scored, self.drafts, self.adapter)

    def record(self, segment: Segment, offset: int) -> SequenceRecord:
        """Returns the record of this sequence in the step that comes `offset` steps after this row's step. segment:
        what the sequence computes in that step."""
        made = self.num_output_tokens + offset
        return SequenceRecord(self.request_id, segment, made, self.num_recomputed, self.accepted)

    def pack(self) -> bytes:
        """The row as bytes, without its id."""
        return _pack(*self[1:9], self.role is Role.DECODE)

    @classmethod
    def unpacked(cls, request_id: str, packed: tuple[Any, ...]) -> Row:
        """The inverse of `pack`, with the id."""
        start, num_tokens, samples, made, again, scored, drafts, accepted, decodes = packed
        role = Role.DECODE if decodes else Role.PREFILL
        return cls(request_id, start, num_tokens, samples, made, again, scored, drafts, accepted, role)


_ROW = struct.Struct("=ii?iiihh?")
_pack = _ROW.pack


class Run(Struct):
    """A run: consecutive steps with the same sequences. Only a run of decoding steps has more than one step. ordinal:
    the number of its first step, counted from the start of the engine.

    ids, packed: the request ids of the sequences, and their Rows in the first step as bytes.
    """

    step_id: int
    ordinal: int
    ids: tuple[str, ...]
    packed: bytes
    preempted: tuple[str, ...]
    times: StepTimes = field(default_factory=StepTimes)
    known_work: Work | None = None  # set when no further step can come
    delays: dict[int, float] = field(default_factory=dict)  # step -> seconds, only for the few steps with a delay

    @property
    def rows(self) -> list[Row]:
        """What each sequence computed in the first step of the run."""
        return [Row.unpacked(*each) for each in zip(self.ids, _ROW.iter_unpack(self.packed), strict=True)]

    @property
    def num_steps(self) -> int:
        """The number of steps that the run has so far."""
        return len(self.times)

    def begin_s(self, offset: int) -> float:
        """When a step of the run began, by the engine's clock. offset: the step's index in the run."""
        return self.times.at(offset)[0]

    def segments(self, offset: int = 0) -> list[Segment]:
        """Returns what each sequence computed in one step of the run, as a StepCost takes it. offset: the step's index
        in the run."""
        return [row.segment(offset) for row in self.rows]

    def busy_s(self, offset: int) -> float:
        """Seconds of the model and of sampling in one step of the run. offset: the step's index in the run."""
        _, _, model_s, sampling_s, *_ = self.times.at(offset)
        return model_s + sampling_s

    def record(self, offset: int, cost: StepCost | None) -> StepRecord:
        """One step of the run as a record, with a prediction where there is a cost model. offset: the step's index in
        the run."""
        begin_s, _, model_s, sampling_s, waiting, end_s = self.times.at(offset)
        segments = self.segments(offset)
        return StepRecord(
            self.step_id + offset,
            begin_s,
            end_s,
            model_s,
            sampling_s,
            tuple(row.record(segment, offset) for row, segment in zip(self.rows, segments, strict=True)),
            self.preempted if offset == 0 else (),
            waiting,
            None if cost is None else cost.predict(segments),
            self.delays.get(offset, 0.0),
        )


class Sample(Struct, frozen=True):
    """One step of the history. run: the consecutive steps with the same sequences among which it is. offset: the step's
    index in the run."""

    run: Run
    offset: int

    @property
    def segments(self) -> list[Segment]:
        """What each sequence computed in this step."""
        return self.run.segments(self.offset)

    @property
    def ordinal(self) -> int:
        """The step's number, counted from the start of the engine."""
        return self.run.ordinal + self.offset

    @property
    def has_chunks(self) -> bool:
        """Whether the step computed a chunk of a prompt."""
        return any(row.role is Role.PREFILL for row in self.run.rows)

    @property
    def busy_s(self) -> float:
        """Seconds of the model and of sampling in this step."""
        return self.run.busy_s(self.offset)


class StepRange(Struct, frozen=True):
    """Steps [first, last) of one run, which is a series of steps with the same sequences."""

    run: Run
    first: int
    last: int


class StepHistory:
    """Keeps records of the latest steps, in runs: a run has consecutive steps with the same sequences. max_rows limits
    the sum of the numbers of sequences of all runs. The totals include the steps that were dropped."""

    def __init__(self, cost: StepCost | None, max_steps: int, max_rows: int) -> None:
        self._cost = cost
        self._max_steps, self._max_rows = max_steps, max_rows
        self._runs: list[Run] = []
        self._num_steps = self._num_rows = 0  # _num_steps: the number of steps in closed runs
        self._dropped = Work()
        self.recent: list[StepTime] = []  # steps of the open run that are not packed yet
        self.ends: list[float] = []
        self.exchanged = ExchangeSpent()  # sum over all steps
        self._decoded: tuple[int, tuple[Segment, ...]] = (0, ())

    @property
    def fill(self) -> float:
        """How full the history is, from 0 to 1. It counts as full when only DROPPED_SHARE of its room is left, because
        that much is dropped at a time."""
        full = max(self._num_rows / self._max_rows, self._num_steps / self._max_steps)
        return min(1.0, full / (1 - DROPPED_SHARE))

    def open(self, step_id: int, ordinal: int, rows: tuple[Row, ...], preempted: tuple[str, ...]) -> None:
        """Begins a new run with a step of these sequences. The ledger then appends to `recent` the times of each step
        of the run, and to `ends` its end."""
        if self._runs:
            self._runs[-1].times.pack()
            self._num_steps += self._runs[-1].num_steps
        packed = b"".join([row.pack() for row in rows])
        run = Run(step_id, ordinal, tuple([row.request_id for row in rows]), packed, preempted)
        self._runs.append(run)
        self.recent, self.ends = run.times.recent, run.times.ends
        self._num_rows += len(rows)
        if self._num_rows > self._max_rows or self._num_steps > self._max_steps:
            self._drop()

    def pack(self) -> int:
        """Packs the times of the latest steps into one array, and begins new lists `recent` and `ends`. Returns the
        number of steps of the latest run (steps with the same sequences)."""
        run = self._runs[-1]
        run.times.pack()
        self.recent, self.ends = run.times.recent, run.times.ends
        return run.num_steps

    def add_delay(self, result: StepResult) -> float:
        """Records how long the last step's thread waited for a processor that ran other programs. Returns these
        seconds; 0.0 where they are too few to count. Also adds the step's figures of the exchange between ranks to
        `exchanged`."""
        if result.exchange is not None:
            self.exchanged += result.exchange
        if result.delayed_s <= LEAST_DELAY_S:
            return 0.0
        run = self._runs[-1]
        run.delays[run.num_steps - 1] = result.delayed_s
        return result.delayed_s

    def last(self) -> StepRecord | None:
        """The record of the last step; None without steps."""
        return self._runs[-1].record(self._runs[-1].num_steps - 1, self._cost) if self._runs else None

    def records(self) -> Iterator[StepRecord]:
        """Yields the records of all kept steps, the oldest first."""
        for run in list(self._runs):
            for offset in range(run.num_steps):
                yield run.record(offset, self._cost)

    def sample(self, ordinal: int) -> Sample | None:
        """The step with this number, or None where it is gone."""
        runs = self._runs
        place = bisect_right(runs, ordinal, key=lambda run: run.ordinal) - 1
        if place < 0 or not runs[place].num_steps:
            return None
        run = runs[place]
        return Sample(run, min(ordinal - run.ordinal, run.num_steps - 1))

    def decoded_in(self, ordinal: int) -> tuple[Segment, ...]:
        """Returns what each sequence computed that decoded in the step with this number. Completions that end together
        ask for the same step, so the result is kept for the next call."""
        if self._decoded[0] != ordinal:
            sample = self.sample(ordinal)
            segments = [] if sample is None else sample.segments
            self._decoded = (ordinal, tuple(segment for segment in segments if segment.role is Role.DECODE))
        return self._decoded[1]

    def since(self, ordinal: int) -> list[StepRange]:
        """Returns the kept steps that come after the step with this number and are over. Any thread may call it."""
        runs = self._runs
        place = max(0, bisect_right(runs, ordinal + 1, key=lambda run: run.ordinal) - 1)
        found = []
        for run in runs[place:]:
            done = min(run.num_steps, run.times.num_ended) if run is runs[-1] else run.num_steps
            first = max(0, ordinal + 1 - run.ordinal)
            if first < done:
                found.append(StepRange(run, first, done))
        return found

    def latest(self, most: int) -> list[Sample]:
        """Returns the last step of each of the latest `most` runs, as samples of different batches. A run is a series
        of steps with the same sequences."""
        return [Sample(run, run.num_steps - 1) for run in self._runs[-most:] if run.num_steps]

    def work(self) -> Work:
        """FLOPs and bytes of all steps ever; nothing without a cost model. Only the first and the last step of a run
        (consecutive steps with the same sequences) are computed. The work is taken to change evenly between them."""
        runs = list(self._runs)
        for run in runs[:-1]:
            if run.known_work is None:
                run.known_work = self._work_of(run)
        closed = sum((run.known_work for run in runs[:-1] if run.known_work is not None), self._dropped)
        return closed + self._work_of(runs[-1]) if runs else closed

    def _drop(self) -> None:
        """Drops the oldest steps, a whole run (consecutive steps with the same sequences) at a time. The latest run
        stays, because it may grow."""
        steps, rows = (int(most * (1 - DROPPED_SHARE)) for most in (self._max_steps, self._max_rows))
        count = 0
        while count < len(self._runs) - 1 and (self._num_rows > rows or self._num_steps > steps):
            run = self._runs[count]
            self._num_rows -= len(run.ids)
            self._num_steps -= run.num_steps
            self._dropped += self._work_of(run) if run.known_work is None else run.known_work
            count += 1
        self._runs = self._runs[count:]  # a new list, because readers in other threads hold the old one

    def _work_of(self, run: Run) -> Work:
        if self._cost is None or not run.num_steps:
            return Work()
        last = run.num_steps - 1
        first_work = self._cost.predict(run.segments()).work
        return first_work if not last else _sum(first_work, self._cost.predict(run.segments(last)).work, last + 1)


def _sum(first: Work, last: Work, count: int) -> Work:
    """Returns the work (FLOPs and bytes) of `count` steps, which changes evenly from the first step to the last."""
    both = first + last
    return Work(
        both.flops * count // 2,
        both.weight_bytes * count // 2,
        both.kv_bytes * count // 2,
        both.activation_bytes * count // 2,
    )


def device_seconds(prediction: StepPrediction) -> float:
    """Returns the seconds of a prediction without the host's part."""
    return sum(part.seconds for part in prediction.parts if part.name != "host")
