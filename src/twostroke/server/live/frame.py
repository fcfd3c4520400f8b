"""One message (frame) of the live view of the engine: the events since the last frame, compact and of bounded size.

    {"frame": 3, "now_s": ..., "last_step": 912, "skipped_steps": 0, "names": ["chatcmpl-7-0/0", ...],
     "runs": [{"step": 900, "number": 880, "rows": [[name, start, tokens, output tokens before, decoded], ...],
               "preempted": [name, ...], "prefill_share": 0.4, "predicted_s": [first, last], "flops": [first, last],
               "bytes": [first, last], "begin_s": ..., "times": [[begin, whole, model, sampling, waiting], ...]}, ...],
     "requests": [[name, phase, arrival_s, first planned s, first token s, prompt, computed, cached], ...],
     "ended": [{...}], "gauges": {...}, "pages": [[state, count], ...], "latency": {...}, "replicas": [{...}]}

`decoded` is 0 for a part of a prompt; else the tokens that the sequence wrote: one, and the guesses that were right.
A run is consecutive steps of one batch. A value [first, last] changes evenly from the first step to the last one.
`times` has a list of whole microseconds for each step; its first number is the time since begin_s. A name is given as
its index in `names`. Steps and requests that do not fit are left out and counted: the oldest steps, the newest
requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from itertools import groupby
from typing import Any

from twostroke.cost.explain.guesses import seconds_of_guesses
from twostroke.cost.history.account import Account, record_of
from twostroke.cost.history.record import StepRecord
from twostroke.cost.history.record_json import request_to_json
from twostroke.cost.history.step_history import StepRange
from twostroke.cost.prefill_share import prefill_share
from twostroke.cost.shape import StepCost
from twostroke.server.live.view import EngineView

MAX_STEPS, MAX_ROWS, MAX_REQUESTS, MAX_ENDED, MAX_PAGE_SPANS = 1024, 1024, 64, 32, 2048


class _Names:
    """Gives each name an index in the list of names that a frame contains."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places))

    def all(self) -> list[str]:
        return list(self._places)


class Frames:
    """Makes the messages (frames) of the live view for one viewer. `next` returns the events since the last call,
    however long ago that was."""

    def __init__(self, view: EngineView) -> None:
        """view: the engine's records. The first message has the latest steps, as many as one message may have."""
        self._view = view
        self._number = 0
        self._last = 0
        self._ended = max(0, view.ledger.accounts.num_added - MAX_ENDED)

    def next(self, gauges: object, latency: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the next message of the live view: the events since the last one. gauges: the result of
        AsyncEngine.gauges(). latency: the percentiles that the message shows."""
        ledger = self._view.ledger
        found = ledger.history.since(self._last)
        kept = _fitting(found)
        first_time = not self._number
        last = max((stretch.run.ordinal + stretch.last - 1 for stretch in found), default=self._last)
        shown = sum(stretch.last - stretch.first for stretch in kept)
        skipped = 0 if first_time else last - self._last - shown
        self._number, self._last = self._number + 1, last
        names = _Names()
        live = ledger.live()
        ended = ledger.accounts.since(self._ended, MAX_ENDED)
        self._ended = ledger.accounts.num_added
        return {
            "frame": self._number,
            "now_s": round(self._view.clock(), 6),
            "last_step": last,
            "skipped_steps": skipped,
            "runs": [_run(stretch, names, ledger.cost) for stretch in kept],
            "requests": [
                [
                    names.place(each.request_id),
                    each.phase.name.lower(),
                    _round(each.arrival_s),
                    _round(each.first_s),
                    _round(each.token_s),
                    each.num_prompt_tokens,
                    each.num_computed,
                    each.num_cached,
                ]
                for each in live[:MAX_REQUESTS]
            ],
            "more_requests": max(0, len(live) - MAX_REQUESTS),
            "ended": [_ended(account, ledger.cost) for account in ended],
            "gauges": _counts(gauges),
            "pages": _spans(self._view.pages()),
            "latency": dict(latency),
            "replicas": [dict(each) for each in self._view.replicas()],
            "names": names.all(),
        }


def _counts(gauges: object) -> dict[str, int]:
    """Returns those gauges that are whole numbers. The others, such as the names of adapters, are only in /metrics."""
    found = asdict(gauges) if is_dataclass(gauges) and not isinstance(gauges, type) else {}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _fitting(found: Sequence[StepRange]) -> list[StepRange]:
    """Returns the latest of these steps that fit into one message (at most MAX_STEPS steps and MAX_ROWS rows), oldest
    first."""
    kept: list[StepRange] = []
    steps = rows = 0
    for stretch in reversed(found):
        rows += len(stretch.run.ids)
        room = MAX_STEPS - steps
        if room <= 0 or (kept and rows > MAX_ROWS):
            break
        first = max(stretch.first, stretch.last - room)
        kept.append(StepRange(stretch.run, first, stretch.last))
        steps += stretch.last - first
    return kept[::-1]


def _run(stretch: StepRange, names: _Names, cost: StepCost | None) -> dict[str, Any]:
    run, first, last = stretch.run, stretch.first, stretch.last - 1
    value: dict[str, Any] = {
        "step": run.step_id + first,
        "number": run.ordinal + first,
        "rows": [
            [names.place(row.request_id), row.start + first, row.num_tokens, row.num_output_tokens + first, row.decoded]
            for row in run.rows
        ],
        "preempted": [names.place(name) for name in run.preempted] if first == 0 else [],
        "prefill_share": round(prefill_share(run.segments(first), cost), 4),
        "begin_s": _round(run.begin_s(first)),
        "times": [_times(run.record(offset, None), run.begin_s(first)) for offset in range(first, last + 1)],
    }
    if cost is not None:
        ends = [cost.predict(run.segments(offset)) for offset in (first, last)]
        value["predicted_s"] = [_round(each.seconds) for each in ends]
        value["flops"] = [each.work.flops for each in ends]
        value["bytes"] = [each.work.total_bytes for each in ends]
    return value


def _times(record: StepRecord, since_s: float) -> list[int]:
    spans = (record.begin_s - since_s, record.seconds, record.model_s, record.sampling_s)
    return [*(round(1e6 * seconds) for seconds in spans), record.waiting]


def _ended(account: Account, cost: StepCost | None) -> dict[str, Any]:
    value = request_to_json(record_of(account))
    value["parts_s"] = {name: _round(seconds) for name, seconds in value["parts_s"].items()}
    guesses = _guesses(account, cost)
    return {**value, "reason": account.reason.value, "ttft_s": _round(account.ttft_s), "guesses": guesses}


def _guesses(account: Account, cost: StepCost | None) -> dict[str, Any] | None:
    """Returns the tokens guessed and accepted, and the predicted seconds won and lost; None when nothing was guessed.
    """
    counts = account.guesses
    if not counts.steps:
        return None
    won_s, lost_s = seconds_of_guesses(account, cost)
    return {"guessed": counts.guessed, "accepted": counts.accepted, "won_s": _round(won_s), "lost_s": _round(lost_s)}


def _spans(states: bytes) -> list[list[int]]:
    """Returns the states of all pages as run lengths (state, count). If there are too many runs, returns one entry for
    each state, with the state's total."""
    spans = [[state, sum(1 for _ in same)] for state, same in groupby(states)]
    if len(spans) <= MAX_PAGE_SPANS:
        return spans
    return [[state, states.count(state)] for state in sorted(set(states))]


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
