"""Predicts steps of a model that several processes hold together: the work of one process, and what the processes
exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twostroke.cost.shape import Bound, Part, PartPrediction, SteadyCost, StepPrediction
from twostroke.cost.work import Work


@dataclass(frozen=True, slots=True)
class ExchangeWork:
    """What one process sends in a step. meetings: how often processes wait for one another. logit_meetings: how often
    they also wait in steps with logits. row_bytes: the bytes that are sent for each row, to all others together.
    logit_row_bytes: the bytes that are sent for each row that needs logits."""

    meetings: int = 0
    logit_meetings: int = 0
    row_bytes: int = 0
    logit_row_bytes: int = 0

    def __add__(self, other: ExchangeWork) -> ExchangeWork:
        return ExchangeWork(
            self.meetings + other.meetings,
            self.logit_meetings + other.logit_meetings,
            self.row_bytes + other.row_bytes,
            self.logit_row_bytes + other.logit_row_bytes,
        )

    def meetings_of(self, logit_rows: int) -> int:
        """How often ranks wait for one another in a step."""
        return self.meetings + (self.logit_meetings if logit_rows else 0)

    def bytes_of(self, rows: int, logit_rows: int) -> int:
        """Bytes that a step sends."""
        return rows * self.row_bytes + logit_rows * self.logit_row_bytes


@dataclass(frozen=True, slots=True)
class LinkRates:
    """The speed at which processes exchange rows. meeting_s: seconds of one exchange that carries almost no bytes.
    source: where the figures come from, in words."""

    meeting_s: float
    bytes_per_s: float
    source: str

    def seconds(self, work: ExchangeWork, rows: int, logit_rows: int) -> float:
        """Seconds that the processes exchange in a step: a fixed time for each exchange, and the time of sending all
        bytes."""
        return work.meetings_of(logit_rows) * self.meeting_s + work.bytes_of(rows, logit_rows) / self.bytes_per_s


class DividedCost:
    """Predicts steps of a model that several processes hold together. It adds the seconds of their exchange to the
    prediction of `inner`. inner: the cost of what the processes compute, one after the other or all at once. Satisfies
    `cost.shape.SteadyCost`."""

    def __init__(self, inner: SteadyCost, work: ExchangeWork, link: LinkRates) -> None:
        self._inner, self._exchange, self._link = inner, work, link

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        rows = sum(each.num_tokens for each in segments)
        return self._with_exchange(self._inner.predict(segments), rows, sum(each.logit_rows for each in segments))

    def predict_beside(self, starts: Sequence[int], segments: Sequence[Part]) -> StepPrediction:
        rows, logit_rows = len(starts), len(starts)
        for each in segments:
            rows, logit_rows = rows + each.num_tokens, logit_rows + each.logit_rows
        return self._with_exchange(self._inner.predict_beside(starts, segments), rows, logit_rows)

    def decode_run(self, starts: Sequence[int], steps: int) -> Iterator[float]:
        exchange_s = self._link.seconds(self._exchange, len(starts), len(starts))
        for seconds in self._inner.decode_run(starts, steps):
            yield seconds + exchange_s

    def _with_exchange(self, found: StepPrediction, rows: int, logit_rows: int) -> StepPrediction:
        seconds = self._link.seconds(self._exchange, rows, logit_rows) if rows else 0.0
        return StepPrediction((*found.parts, PartPrediction("exchange", seconds, Work(), Bound.LINK)))
