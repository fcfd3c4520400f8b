"""The ledger: every step is recorded, and every second of each completion belongs to one named part.

    ledger.arrive(request)                            when it is queued
    ledger.step(plan, result, begin_s, commit_s)      before the events of a step are sent
    account = ledger.finish(event)                    for its terminal event
    ledger.close_step(end_s)                          when all that a step gives has been handed over

A completion that decodes is in every step, so its parts are differences of running sums. A step that only decodes
therefore costs the ledger the same however many sequences it has. Only steps with prefill, arrivals and preemptions are
looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from msgspec.structs import replace

from twostroke.cost.history.account import (
    Account,
    ChunkStep,
    DiskRead,
    LiveAccount,
    Phase,
    PreemptionSpan,
    record_of,
)
from twostroke.cost.history.accounts import Accounts
from twostroke.cost.history.closed_account import closed_account
from twostroke.cost.history.live_request import LiveRequest, live_request
from twostroke.cost.history.record import RequestRecord, StepRecord
from twostroke.cost.history.running_sums import RunningSums, Span, begun_early, span
from twostroke.cost.history.step_history import MAX_RUN_STEPS, Row, StepHistory
from twostroke.cost.history.step_times import BLOCK_STEPS, StepTime
from twostroke.cost.history.waits import Waits
from twostroke.cost.prefill_share import Encode, encode_of, seconds_by_chunk, tokens_of
from twostroke.cost.shape import StepCost
from twostroke.types.event import FinishedEvent
from twostroke.types.plan import Plan, Preemption, Role
from twostroke.types.request import Request
from twostroke.types.result import StepResult

MAX_STEPS, MAX_ROWS, MAX_FINISHED = 16_384, 32_768, 2048

Sink = Callable[[StepRecord | RequestRecord], None]


class Ledger:
    """Records steps and accounts for completions. One thread writes; other threads may read `accounts` and `history`.

    cost: without it, a mixed step's time is shared out by rows. sink: gets each step and each ended completion.
    """

    def __init__(self, cost: StepCost | None = None, sink: Sink | None = None) -> None:
        self.cost = cost
        self.history = StepHistory(cost, MAX_STEPS, MAX_ROWS)
        self.accounts = Accounts(MAX_FINISHED)
        self._sink = sink
        self._live: dict[str, LiveAccount] = {}
        self._filling: dict[str, LiveAccount] = {}
        self._num_decoding = self._num_waiting = 0
        self._sums = RunningSums()
        self._num_before = 0
        self._recent: list[StepTime] = []  # the last steps; the sums contain the first _num_summed of them
        self._ends: list[float] = []
        self._num_summed = 0
        self._away_s = 0.0  # seconds away since the last step
        self._delayed_s = 0.0  # sum over all steps: seconds in which the processor was busy with something else
        self._last: Request | None = None  # the last sequence of a step that held all decodes and nothing else
        self.waits = Waits()
        self.in_flight: Container[str] = frozenset()  # requests of the plans that have begun; see FlightListener

    @property
    def num_steps(self) -> int:
        """The number of steps so far."""
        return self._num_before + len(self._recent)

    def arrive(self, request: Request) -> None:
        """Begin the account of a completion that is queued now."""
        live = LiveAccount(request, mark_s=request.arrival_s)
        live.num_running = self._num_decoding + len(self._filling)
        live.num_ahead = len(self._live) - live.num_running
        self._live[request.request_id] = live
        self._num_waiting += 1

    def away(self, seconds: float) -> None:
        """Records that the engine stood still for `seconds`, because the reader of its events did something else."""
        self._away_s += seconds

    def read_back(self, request_id: str, tokens: int, seconds: float) -> None:
        """Record that `tokens` of a completion's prompt were read from a disk, for which it waited `seconds`."""
        if (live := self._live.get(request_id)) is not None:
            live.disk = DiskRead(tokens, seconds)

    def disk_of(self, request_id: str) -> DiskRead:
        """Returns the reading from a disk for a completion that has not ended; zeros for an unknown id."""
        return self._live[request_id].disk if request_id in self._live else DiskRead()

    def begun(self, plan: Plan, now: float) -> None:
        """Note that a plan begins while earlier plans are in flight. Its sequences stop waiting now, although the
        result of the plan comes after those of the earlier plans."""
        for sequence in plan.sequences:
            live = self._live.get(sequence.request.request_id)
            if live is not None and live.phase not in (Phase.DECODING, Phase.FILLING):
                self._enter(live, now)
                self._last = None

    def step(self, plan: Plan, result: StepResult, begin_s: float, commit_s: float) -> None:
        """Record a step that was computed. Its events come after this call, at commit_s."""
        sequences = plan.sequences
        time = (begin_s, commit_s, result.model_s, result.sampling_s, self._num_waiting, self._away_s)
        if result.early_s and sequences[-1].role is Role.DECODE:
            time = begun_early(time, self._recent, self._sums)
        self._away_s = 0.0
        # Admissions come last. So if the number and the last sequence, which decodes, are equal, all sequences are.
        if (
            not (plan.span or result.encode_s)
            and sequences[-1].request is self._last
            and len(sequences) == self._num_decoding
            and sequences[-1].role is Role.DECODE
            and plan.held is self.waits.held
            and not plan.preemptions
            and not plan.num_draft_tokens
        ):
            self._recent.append(time)
        else:
            self._look_into(plan, result, time)
        self._delayed_s += self.history.add_delay(result)

    def live(self) -> list[LiveRequest]:
        """Returns the completions that have not ended, in order of arrival. Any thread may call it."""
        return [live_request(live) for live in list(self._live.values())]

    def live_one(self, request_id: str) -> LiveRequest | None:
        """Returns one completion that has not ended; None for an unknown id. Any thread may call it."""
        live = self._live.get(request_id)
        return None if live is None else live_request(live)

    def close_step(self, end_s: float) -> None:
        """Record that everything that the last step gave has been handed over."""
        self._ends.append(end_s)
        if len(self._ends) >= BLOCK_STEPS:
            self._put_away()
        if self._sink is not None and (record := self.history.last()) is not None:
            self._sink(record)

    def finish(self, event: FinishedEvent) -> Account | None:
        """End the account of a completion and return it; None for a completion that never arrived."""
        live = self._live.pop(event.request_id, None)
        if live is None:
            return None
        self._last = None
        self._sum_up()
        at_s = event.at_s
        if live.phase is Phase.DECODING:
            self._num_decoding -= 1
            self._settle(live)
            self._rest(live, at_s - self._sums.commit_s)
        elif live.phase is Phase.FILLING:
            del self._filling[event.request_id]
            self._rest(live, at_s - live.mark_s)
        elif live.phase is Phase.BACK:
            live.back_s += at_s - live.mark_s
        else:
            live.queue_s = max(0.0, at_s - live.mark_s - live.encode_s)
            live.queue = self.waits.story(live, at_s, self.num_steps)
        self.waits.ended(event.request_id, at_s)
        account = self._close(live, event)
        if self._sink is not None:
            self._sink(record_of(account))
        return account

    def _close(self, live: LiveAccount, event: FinishedEvent) -> Account:
        account = closed_account(live, event, self.waits, self.history, self.num_steps, self._delayed_s)
        self.accounts.add(account)
        return account

    def _sum_up(self) -> None:
        """Adds the seconds of the steps since the last call, which all only decoded, to the running sums."""
        recent = self._recent
        if self._num_summed < len(recent):
            self._sums.add_decoding(recent[self._num_summed :])
            self._num_summed = len(recent)

    def _put_away(self) -> None:
        """Adds the latest steps to the running sums, and packs their records in the history into bytes."""
        self._sum_up()
        self._num_before = self.num_steps
        if self.history.pack() >= MAX_RUN_STEPS:
            self._last = None  # the next step begins another run
        self._recent, self._ends, self._num_summed = self.history.recent, self.history.ends, 0

    def _look_into(self, plan: Plan, result: StepResult, time: StepTime) -> None:
        self._sum_up()
        self._num_before, self._recent = self.num_steps + 1, []  # the step under way counts already
        rows = self._composition(plan, result, span(time, self._sums.commit_s))
        self._num_waiting = len(self._live) - self._num_decoding - len(self._filling)
        self.history.open(plan.step_id, self._num_before, rows, plan.preempted)
        self._num_before -= 1
        self._recent, self._ends, self._num_summed = self.history.recent, self.history.ends, 1
        self._recent.append((*time[:4], self._num_waiting, time[5]))

    def _composition(self, plan: Plan, result: StepResult, span: Span) -> tuple[Row, ...]:
        self.waits.hold(plan.held, span.begin_s)
        for preemption in plan.preemptions:
            self._put_back(preemption, plan, span)
        was_decoding = self._num_decoding
        planned_decoding = 0
        for sequence in plan.computed:
            live = self._live.get(sequence.request.request_id)
            if live is not None and live.phase is Phase.DECODING:
                planned_decoding += 1
            elif live is not None and live.phase is not Phase.FILLING:
                self._enter(live, span.begin_s)
        rows = self._rows(plan, result)
        if plan.span is not None and (shown := self._live.get(plan.span.request_id)) is not None:
            shown.add_span(len(plan.span.pieces))
        encode = encode_of(plan, result, span.busy_s, self._live)
        by_chunk = seconds_by_chunk(plan, result, rows, span.busy_s - encode.seconds, self.cost)
        chunk_s = sum(by_chunk.values()) + encode.seconds
        if by_chunk or encode.seconds:
            filling = [row for row in rows if row.request_id in by_chunk]
            chunks = tuple((row.request_id, tokens_of(plan, row), by_chunk[row.request_id]) for row in filling)
            chunks += ((encode.request_id, 0, encode.seconds),) if encode.seconds else ()
            self.waits.chunk_steps.append(ChunkStep((self.num_steps, span.begin_s, span.commit_s, chunks)))
        self._sums.add(span, chunk_s)
        if planned_decoding != was_decoding:
            self._pass_over(plan, span.busy_s - chunk_s)
        self._account_filling(rows, by_chunk, encode, span)
        for row in rows:
            live = self._filling.get(row.request_id)
            if live is not None and row.samples and result.sampled.get(row.request_id):
                self._begin_decode(live, span)
        steady = not (self._filling or by_chunk or plan.num_draft_tokens) and self._num_decoding == len(rows)
        self._last = plan.sequences[-1].request if steady else None
        return rows[: len(plan.sequences)]

    def _rows(self, plan: Plan, result: StepResult) -> tuple[Row, ...]:
        rows = []
        for sequence in plan.computed:
            live = self._filling.get(sequence.request.request_id)
            again = 0 if live is None else max(0, min(sequence.start + sequence.num_tokens, live.high) - sequence.start)
            rows.append(row := Row.of(sequence, again, result))
            if row.drafts and (drafted := self._live.get(row.request_id)) is not None:
                drafted.guesses = drafted.guesses.with_step(row.drafts, row.accepted)
        return tuple(rows)

    def _enter(self, live: LiveAccount, begin_s: float) -> None:
        """Adds the waiting time of a completion that is planned now, for the first time or after a preemption."""
        if live.phase is Phase.QUEUED:
            live.queue_s = max(0.0, begin_s - live.mark_s - live.encode_s)
            live.first_s, live.first_ordinal = begin_s, self.num_steps
            live.delayed_before_s = self._delayed_s
            live.queue = self.waits.story(live, begin_s, self.num_steps)
            live.mark_s = max(live.mark_s, begin_s)
        else:
            live.back_s += begin_s - live.mark_s
            live.mark_s, live.spells[-1] = begin_s, replace(live.spells[-1], until_s=begin_s)
        live.phase = Phase.FILLING
        self._filling[live.request.request_id] = live

    def _account_filling(self, rows: Sequence[Row], by_chunk: dict[str, float], encode: Encode, span: Span) -> None:
        """Adds the step's time to all completions whose prompts are not finished, also to those outside the step."""
        chunk_s = sum(by_chunk.values()) + encode.seconds
        own_rows = {row.request_id: row for row in rows}
        if (waiting := self._live.get(encode.request_id)) is not None:
            waiting.add_encode(encode.seconds, encode.pieces)
        for request_id, live in self._filling.items():
            stall_s = span.away_s if live.mark_s < span.begin_s else 0.0
            live.stall_s += stall_s
            live.host_s += span.commit_s - live.mark_s - span.busy_s - stall_s
            live.mark_s = span.commit_s
            own_encode_s = encode.seconds if request_id == encode.request_id else 0.0
            live.encode_s += own_encode_s
            row = own_rows.get(request_id)
            if row is None and request_id in self.in_flight:
                live.add_own(span.busy_s)
                continue
            if row is None:
                live.others_s += span.busy_s - own_encode_s
                continue
            if not live.computed:
                live.cached = row.start
            live.computed = row.start + row.num_tokens
            own_s = span.busy_s - chunk_s + by_chunk.get(request_id, 0.0)
            live.others_s += span.busy_s - own_s - own_encode_s
            live.add_own(own_s, own_s * row.num_recomputed / row.num_tokens)

    def _begin_decode(self, live: LiveAccount, span: Span) -> None:
        """Moves a completion with its next token to DECODING: from now on the sums over all steps count for it."""
        if live.token_s is None:
            live.token_s, live.token_ordinal = span.commit_s, self.num_steps
            live.delayed_token_s = self._delayed_s
            live.start = live.parts()
        del self._filling[live.request.request_id]
        live.phase = Phase.DECODING
        live.sums = self._sums.now
        self._num_decoding += 1

    def _pass_over(self, plan: Plan, base_s: float) -> None:
        """Counts base_s (a step's decode time) as others' time for decoding sequences that are in no plan now."""
        inside = {sequence.request.request_id for sequence in plan.sequences}
        for request_id, live in self._live.items():
            if live.phase is Phase.DECODING and request_id not in inside and request_id not in self.in_flight:
                live.decode_s -= base_s
                live.others_s += base_s

    def _put_back(self, preemption: Preemption, plan: Plan, span: Span) -> None:
        request_id, by = preemption.request_id, preemption.by
        live = self._live.get(request_id)
        if live is None or live.phase in (Phase.QUEUED, Phase.BACK):
            return
        since_s = live.mark_s
        if live.phase is Phase.DECODING:
            self._num_decoding -= 1
            self._settle(live)
            since_s = self._sums.commit_s
        else:
            del self._filling[request_id]
        live.stall_s += span.away_s
        live.host_s += span.begin_s - since_s - span.away_s
        live.high = max(live.high, preemption.num_computed)
        live.phase, live.mark_s = Phase.BACK, span.begin_s
        if by == request_id:
            holder = max(plan.sequences, key=lambda each: len(each.page_ids), default=None)
            by = by if holder is None else holder.request.request_id
        live.spells.append(PreemptionSpan(by, span.begin_s, found_none=preemption.by == request_id))

    def _settle(self, live: LiveAccount) -> None:
        """Adds to a completion's account what the sums over all steps have grown by since its decode began."""
        then, now = live.sums, self._sums.now
        live.decode_s += now.base_s - then.base_s
        live.others_s += now.chunk_s - then.chunk_s
        live.host_s += now.host_s - then.host_s
        live.stall_s += now.stall_s - then.stall_s

    def _rest(self, live: LiveAccount, seconds: float) -> None:
        """Adds the seconds from the last step to the end of a completion that ends between two steps."""
        stall_s = min(self._away_s, max(0.0, seconds))
        live.stall_s += stall_s
        live.host_s += seconds - stall_s
