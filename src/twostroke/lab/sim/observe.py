"""Observations of each simulated request, as a client would have made them, for the bench's figures."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from twostroke.lab.sim.replica import Replica
from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.types.event import Event, PromptEvent, TokenEvent
from twostroke.types.request import Request


@dataclass(slots=True)
class Seen:
    """What was seen of one request. ends_s: the ends of the steps that gave its tokens so far, in seconds; 8 bytes
    each. where: the replicas that served it."""

    asked: WorkloadRequest
    ends_s: array[float] = field(default_factory=lambda: array("d"))
    ended_s: float | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    error: str = ""
    where: list[str] = field(default_factory=list)

    @property
    def times_s(self) -> list[float]:
        """The times at which the request got its tokens, in seconds."""
        return self.ends_s.tolist()

    def observation(self) -> Observation:
        """Returns the record of this simulated request that the load generator would make of a real one."""
        asked = self.asked
        return Observation(
            intended_s=asked.arrival_s,
            sent_s=asked.arrival_s,
            ended_s=asked.arrival_s if self.ended_s is None else self.ended_s,
            times_s=tuple(self.ends_s),
            prompt_tokens=asked.prompt_tokens,
            output_tokens=len(self.ends_s),
            cached_tokens=self.cached_tokens,
            error=self.error,
            priority=asked.priority,
        )


class Notebook:
    """A Listener that records everything, by request id. Satisfies `Listener`."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def open(self, name: str, asked: WorkloadRequest) -> Seen:
        """Begins the record of a request that is on its way."""
        self.seen[name] = seen = Seen(asked)
        return seen

    def on_event(self, replica: Replica, event: Event) -> None:
        if isinstance(event, TokenEvent):
            self.seen[event.request_id].ends_s.append(event.at_s)
            return
        if isinstance(event, PromptEvent):
            return
        seen = self.seen[event.request_id]
        seen.ended_s = event.at_s
        seen.cached_tokens += event.num_cached_tokens
        seen.preemptions += event.num_preemptions
        seen.error = event.error or ""

    def on_run(self, replica: Replica, request: Request, times_s: array[float]) -> None:
        self.seen[request.request_id].ends_s.extend(times_s)
