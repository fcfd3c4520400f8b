"""Metrics of the requests that wait, run or are refused (see gate/door.py), read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twostroke.server.gate.body_budget import BodyBudget
from twostroke.server.gate.door import Door


class DoorCollector(Collector):
    """Gauges of waiting and running requests, and a counter of refusals by reason."""

    def __init__(self, door: Door, bodies: BodyBudget) -> None:
        self._door = door
        self._bodies = bodies

    def describe(self) -> list[Metric]:
        """Returns no metrics, because nothing is read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the gauges of waiting and running requests, and the counter of refusals."""
        door = self._door
        for name, text, value in (
            ("twostroke_calls_in_flight", "HTTP calls that have not ended.", door.in_flight),
            ("twostroke_queued_requests", "Completions that wait for their first token.", door.queued_requests),
            ("twostroke_queued_prompt_tokens", "Their prompt tokens.", door.queued_tokens),
            ("twostroke_body_bytes", "Bytes of request bodies that are read or parsed.", self._bodies.held_bytes),
            ("twostroke_draining", "1 while the server takes no new requests.", int(door.draining)),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        refused = CounterMetricFamily("twostroke_refusals", "Calls that were refused, by reason.", labels=["reason"])
        for reason, count in sorted({**door.refusals, "bodies_full": self._bodies.refused}.items()):
            refused.add_metric([reason], count)
        yield refused
