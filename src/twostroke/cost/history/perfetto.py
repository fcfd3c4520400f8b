"""Step records as a Chrome trace, which Perfetto opens: a lane of steps and one lane for each request.

    trace(records_by_replica) -> {"traceEvents": [...]}, times in microseconds from the first arrival or step
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.cost.history.record import RequestRecord, SequenceRecord, StepRecord
from twostroke.cost.history.record_json import Record
from twostroke.types.plan import Role

STEP_LANE = 0
US_PER_S = 1e6
QUEUED, AGAIN = "queued", "computed again"


@dataclass(slots=True)
class _Slice:
    """What a request does from begin_s on; decoding steps in a row are one slice."""

    kind: str
    begin_s: float
    end_s: float
    steps: int
    tokens: int
    last_step: int


def trace(groups: Mapping[str, Sequence[Record]]) -> dict[str, Any]:
    """Returns the trace. groups: the records of each replica, in order of time. Each replica is one process of the
    trace."""
    begin_s = min((_begin(record) for records in groups.values() for record in records), default=0.0)
    events: list[dict[str, Any]] = []
    for number, (name, records) in enumerate(groups.items(), 1):
        events += _Process(number, name, begin_s).events(records)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _begin(record: Record) -> float:
    return record.begin_s if isinstance(record, StepRecord) else record.arrival_s


class _Process:
    """The lanes of one replica."""

    def __init__(self, number: int, name: str, begin_s: float) -> None:
        self._number, self._name, self._begin_s = number, name, begin_s
        self._lanes: dict[str, int] = {}
        self._open: dict[str, _Slice] = {}

    def events(self, records: Iterable[Record]) -> Iterator[dict[str, Any]]:
        """Returns the trace events of these records, in Perfetto's format. Each lane (one row of the viewer) is named
        before its first event."""
        yield self._named("process_name", STEP_LANE, self._name)
        yield self._named("thread_name", STEP_LANE, "steps")
        index = 0
        for record in records:
            if isinstance(record, StepRecord):
                yield from self._step(record, index)
                index += 1
            else:
                yield from self._ended(record)
        for name in list(self._open):
            yield from self._close(name)

    def _step(self, record: StepRecord, index: int) -> Iterator[dict[str, Any]]:
        rows = sum(each.segment.num_tokens for each in record.sequences)
        decoding = [each.segment.num_tokens for each in record.sequences if each.segment.role is Role.DECODE]
        words = [f"{len(decoding)} decode"] if decoding else []
        if rows > sum(decoding):
            words.append(f"{rows - sum(decoding)} prefill rows")
        detail: dict[str, Any] = {
            "step": record.step_id,
            "rows": rows,
            "sequences": len(record.sequences),
            "model_ms": 1e3 * record.model_s,
            "sampling_ms": 1e3 * record.sampling_s,
            "host_ms": 1e3 * record.host_s,
        }
        scored = sum(each.segment.scored for each in record.sequences)
        if scored:
            detail["scored_rows"] = scored
        if record.predicted is not None:
            detail["predicted_ms"] = 1e3 * record.predicted.seconds
            detail["predicted_parts_ms"] = {part.name: 1e3 * part.seconds for part in record.predicted.parts}
        yield self._slice(STEP_LANE, " + ".join(words) or "empty", record.begin_s, record.end_s, detail)
        counts = {"running": len(record.sequences), "waiting": record.waiting}
        yield {"ph": "C", "name": "requests", "ts": self._us(record.begin_s), "pid": self._number, "args": counts}
        yield {"ph": "C", "name": "rows", "ts": self._us(record.begin_s), "pid": self._number, "args": {"rows": rows}}
        for name in record.preempted:
            yield from self._close(name)
            yield from self._instant(name, "preempted", record.begin_s)
        for each in record.sequences:
            yield from self._take_part(each, record, index)

    def _take_part(self, each: SequenceRecord, record: StepRecord, index: int) -> Iterator[dict[str, Any]]:
        kind = AGAIN if each.num_recomputed_tokens else each.segment.role.value
        found = self._open.get(each.request_id)
        if found is not None and found.kind == kind == Role.DECODE and found.last_step == index - 1:
            found.end_s, found.last_step = record.end_s, index
            found.steps += 1
            found.tokens += 1
            return
        yield from self._close(each.request_id)
        yield from self._lane_named(each.request_id)
        tokens = each.segment.num_tokens
        self._open[each.request_id] = _Slice(kind, record.begin_s, record.end_s, 1, tokens, index)

    def _ended(self, record: RequestRecord) -> Iterator[dict[str, Any]]:
        name = record.request_id
        # A server writes this line before the line of the last step, so the lane stays open for that step.
        yield from self._lane_named(name)
        queued_s = record.parts_s.get("queue_s", 0.0)
        detail = {
            "prompt_tokens": record.num_prompt_tokens,
            "output_tokens": record.num_output_tokens,
            "cached_tokens": record.num_cached_tokens,
            **{part: 1e3 * seconds for part, seconds in record.parts_s.items()},
        }
        if queued_s > 0:
            yield self._slice(self._lanes[name], QUEUED, record.arrival_s, record.arrival_s + queued_s, detail)
        yield from self._instant(name, "ended", record.finished_s, detail)

    def _close(self, name: str) -> Iterator[dict[str, Any]]:
        found = self._open.pop(name, None)
        if found is not None:
            detail = {"steps": found.steps, "tokens": found.tokens}
            yield self._slice(self._lanes[name], found.kind, found.begin_s, found.end_s, detail)

    def _lane_named(self, name: str) -> Iterator[dict[str, Any]]:
        if name not in self._lanes:
            self._lanes[name] = len(self._lanes) + 1
            yield self._named("thread_name", self._lanes[name], name)

    def _instant(
        self, name: str, what: str, at_s: float, detail: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        yield from self._lane_named(name)
        where = {"pid": self._number, "tid": self._lanes[name]}
        yield {"ph": "i", "s": "t", "name": what, "ts": self._us(at_s), **where, "args": dict(detail or {})}

    def _slice(self, lane: int, name: str, begin_s: float, end_s: float, detail: Mapping[str, Any]) -> dict[str, Any]:
        ts = self._us(begin_s)
        where = {"pid": self._number, "tid": lane}
        return {"ph": "X", "name": name, "ts": ts, "dur": self._us(end_s) - ts, **where, "args": dict(detail)}

    def _named(self, what: str, lane: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": self._number, "tid": lane, "args": {"name": name}}

    def _us(self, at_s: float) -> float:
        return round((at_s - self._begin_s) * US_PER_S, 3)
