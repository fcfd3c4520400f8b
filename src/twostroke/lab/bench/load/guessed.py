"""What speculative decoding did during a load run, by the counters of the server: this engine, or any server with
vLLM's names of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from twostroke.cost.explain.explanation import duration

GUESSED, ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"
WON, LOST = "twostroke_draft_won_seconds_total", "twostroke_draft_lost_seconds_total"
MAX_METRICS_BYTES = 4 << 20
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class GuessTotals:
    """The totals of speculative decoding that a server counts: tokens guessed and accepted. won_s: the predicted
    seconds of the steps that accepted guesses saved. lost_s: the predicted seconds of verifying. Both are None where
    the server gives no figure."""

    guessed: float
    accepted: float
    won_s: float | None
    lost_s: float | None

    def since(self, before: GuessTotals) -> GuessTotals:
        """Returns the difference from earlier totals."""
        won_s = None if self.won_s is None or before.won_s is None else self.won_s - before.won_s
        lost_s = None if self.lost_s is None or before.lost_s is None else self.lost_s - before.lost_s
        return GuessTotals(self.guessed - before.guessed, self.accepted - before.accepted, won_s, lost_s)

    def text(self) -> str:
        """Returns one line: how many guessed tokens were accepted, and the seconds won and lost where they are known.
        """
        share = self.accepted / self.guessed
        line = f"{self.accepted:,.0f} of {self.guessed:,.0f} guessed tokens were accepted ({share:.0%})"
        if not self.won_s and not self.lost_s:  # also a front, whose replicas predict without telling it
            return line
        won, lost = duration(self.won_s or 0.0), duration(self.lost_s or 0.0)
        return f"{line}: about {won} of steps spared, {lost} for verifying, as the server predicts"

    def as_json(self) -> dict[str, Any]:
        """Returns the counts and seconds as plain values for a report in JSON."""
        return asdict(self)


async def guess_totals(client: httpx2.AsyncClient, base_url: str) -> GuessTotals | None:
    """Reads the counters of the server at this address. Returns None where the server has no such counters, or no
    metrics."""
    parts = urlsplit(base_url)
    try:
        reply = await client.get(f"{parts.scheme}://{parts.netloc}/metrics", timeout=TIMEOUT_S)
    except httpx2.RequestError:
        return None
    if reply.status_code != 200:
        return None
    found = _sums(reply.content[:MAX_METRICS_BYTES].decode("utf-8", "replace"))
    if GUESSED not in found:
        return None
    return GuessTotals(found[GUESSED], found.get(ACCEPTED, 0.0), found.get(WON), found.get(LOST))


def _sums(text: str) -> Mapping[str, float]:
    """Returns the values of four counters in a text of Prometheus metrics: GUESSED and ACCEPTED (tokens), WON and LOST
    (seconds that guessing saved and cost). Values with different labels are summed."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name = line.split("{")[0].split(" ")[0]
        if name not in (GUESSED, ACCEPTED, WON, LOST):
            continue
        try:
            value = float(line[len(name) :].rsplit("}", 1)[-1].split()[0])
        except (ValueError, IndexError):
            continue
        found[name] = found.get(name, 0.0) + value
    return found
