"""The record of one step. It has the sequences of the step, the predicted time and the measured times.

The engine's ledger writes it. It is read by explain, by the trace file (Perfetto) and by the simulator that replays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from twostroke.cost.shape import Segment, StepPrediction


class SequenceRecord(Struct, frozen=True):
    """One completion's part of a step. num_output_tokens: output tokens made before this step.

    num_recomputed_tokens: the rows that had been computed before a preemption. num_accepted: the draft tokens that were
    accepted.
    """

    request_id: str
    segment: Segment
    num_output_tokens: int
    num_recomputed_tokens: int = 0
    num_accepted: int = 0


class StepRecord(Struct, frozen=True):
    """One step. Times are seconds of the engine's clock.

    begin_s: when `schedule` was called, or when a GPU began the step early, which may be before the end_s of the
    previous step. end_s: when `commit` was done and the events were handed over. model_s and sampling_s are the
    executor's own figures; what is left of end_s - begin_s is the host gap. waiting: requests left waiting. delayed_s:
    how many seconds since the last step the step's thread was ready, but the processor ran other programs.
    """

    step_id: int
    begin_s: float
    end_s: float
    model_s: float
    sampling_s: float
    sequences: tuple[SequenceRecord, ...]
    preempted: tuple[str, ...] = ()
    waiting: int = 0
    predicted: StepPrediction | None = None
    delayed_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from the step's beginning to its end."""
        return self.end_s - self.begin_s

    @property
    def host_s(self) -> float:
        """The seconds of the step in which neither the model nor sampling ran, but other code such as the scheduler."""
        return self.seconds - self.model_s - self.sampling_s


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The record of one completion that has ended. parts_s: the seconds of each named part of its time; they add up to
    its end-to-end time."""

    request_id: str
    arrival_s: float
    finished_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int = 0
    priority: int = 0
    parts_s: Mapping[str, float] = field(default_factory=dict)
