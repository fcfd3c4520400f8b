"""How full the server's bounded histories of measurements (steps, completions, TTFTs, gaps) are, read at each scrape. A
server's memory grows until they are full, and then no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twostroke.cost.history.ledger import MAX_FINISHED, Ledger
from twostroke.cost.history.waits import MAX_CHUNK_STEPS, MAX_HOLDS
from twostroke.server.live.recent import MOST_FIRST, MOST_NEXT, Recent

NAME = "twostroke_history_fill_ratio"


def fills(ledger: Ledger, recent: Recent) -> Mapping[str, float]:
    """Returns how full each history is, from 0 (empty) to 1 (the oldest is dropped for a new one). Any thread may call
    it."""
    return {
        "steps": ledger.history.fill,
        "steps_with_prefill": len(ledger.waits.chunk_steps) / MAX_CHUNK_STEPS,
        "completions": len(ledger.accounts) / MAX_FINISHED,
        "queue_holds": len(ledger.waits.holds) / MAX_HOLDS,
        "first_tokens": len(recent.ttft_s) / MOST_FIRST,
        "gaps": len(recent.itl_s) / MOST_NEXT,
    }


class HistoryCollector(Collector):
    """A gauge of how full each bounded history of measurements is. Its label is the name of the history."""

    def __init__(self, ledger: Ledger, recent: Recent) -> None:
        self._ledger = ledger
        self._recent = recent

    def describe(self) -> list[Metric]:
        """Returns no metrics, because nothing is read before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields one gauge: how full each bounded history of measurements is, from 0 to 1."""
        found = GaugeMetricFamily(NAME, "How full a bounded history is.", labels=["history"])
        for name, fill in fills(self._ledger, self._recent).items():
            found.add_metric([name], fill)
        yield found
