"""The figures of a run, from the observations of its requests, under this project's definitions.

    TTFT   from the intended send to the first text, so that a late client or a queue is not hidden
    ITL    every gap between two consecutive tokens of a request, all requests together
    TPOT   (E2E - TTFT) / (output tokens - 1), one a request
    E2E    from the intended send to the last text
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twostroke.lab.workload.objectives import Objectives, met
from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.summary import Summary, summary

SHORTEST_RUN_S = 1e-9
"""The shortest run that has rates, in seconds: no clock measures less."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run. Times are in seconds. Rates are per second of duration_s, which runs from the first
    intended send to the last end; they are 0 where that is less than SHORTEST_RUN_S.

    prompt_tokens, output_tokens: the tokens of whole answers, from `usage`. uncounted: the number of whole answers
    whose server sent no usage, so that chunks were counted as tokens. chunk_tokens: the mean number of output tokens in
    a chunk. Where it is not 1 and the server does not send each chunk's count, ITL is the gap between chunks.
    send_late: sent - intended. busy_mean, busy_most: requests under way, on average and at most. errors: the number of
    requests by reason. goodput_per_s, good_share: None without objectives.
    """

    requests: int
    completed: int
    errors: dict[str, int]
    duration_s: float
    requests_per_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    uncounted: int
    chunk_tokens: float | None
    ttft: Summary | None
    itl: Summary | None
    tpot: Summary | None
    e2e: Summary | None
    send_late: Summary | None
    busy_mean: float
    busy_most: int
    objectives: Objectives
    good: int | None
    goodput_per_s: float | None
    good_share: float | None

    def as_json(self) -> dict[str, Any]:
        """Returns the figures as plain values."""
        return asdict(self)


def figures(seen: Sequence[Observation], objectives: Objectives | None = None) -> Figures:
    """Returns the figures of all requests of a run, in any order. Failed requests count as requests and as errors,
    without latencies."""
    wanted = objectives or Objectives()
    whole = [each for each in seen if each.whole]
    duration_s = run_seconds(seen)
    per_s = 1 / duration_s if duration_s >= SHORTEST_RUN_S else 0.0
    prompt = sum(each.prompt_tokens or 0 for each in whole)
    output = sum(each.tokens for each in whole)
    chunks = sum(len(each.arrivals) for each in whole)
    good = sum(met(each, wanted) for each in seen) if wanted.any else None
    return Figures(
        requests=len(seen),
        completed=len(whole),
        errors=dict(Counter(each.error for each in seen if not each.whole)),
        duration_s=duration_s,
        requests_per_s=len(whole) * per_s,
        prompt_tokens=prompt,
        cached_tokens=sum(each.cached_tokens for each in whole),
        output_tokens=output,
        prompt_tokens_per_s=prompt * per_s,
        output_tokens_per_s=output * per_s,
        uncounted=sum(each.output_tokens is None for each in whole),
        chunk_tokens=output / chunks if chunks else None,
        ttft=summary([each.ttft_s for each in whole if each.ttft_s is not None]),
        itl=summary([gap for each in whole for gap in each.gaps_s]),
        tpot=summary([each.tpot_s for each in whole if each.tpot_s is not None]),
        e2e=summary([each.e2e_s for each in whole if each.e2e_s is not None]),
        send_late=summary([each.sent_s - each.intended_s for each in seen]),
        busy_mean=math.fsum(each.ended_s - each.sent_s for each in seen) * per_s,
        busy_most=most_at_once(seen),
        objectives=wanted,
        good=good,
        goodput_per_s=None if good is None else good * per_s,
        good_share=None if good is None or not seen else good / len(seen),
    )


def run_seconds(seen: Sequence[Observation]) -> float:
    """Returns the seconds from the first intended send to the last end; 0 without requests."""
    return max((each.ended_s for each in seen), default=0.0) - min((each.intended_s for each in seen), default=0.0)


def most_at_once(seen: Sequence[Observation]) -> int:
    """Returns the number of requests under way at the busiest moment. A request that ends at the moment when another is
    sent is not counted at that moment."""
    moments = sorted([(each.sent_s, 1) for each in seen] + [(each.ended_s, -1) for each in seen])
    now = most = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most
