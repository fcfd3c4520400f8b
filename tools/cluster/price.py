"""Measures what a front costs: a server alone and a front with one replica answer in turn."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.cluster.case import Note, Outcome, gaps_of
from tools.cluster.processes import Server, Stream, processor_s, serving

PROMPT = "Write about prefill and decode. " * 8
TTFT_MS, ITL_MS, CPU_SHARE = 1.0, 0.2, 0.05
RATE, RATE_S = 300.0, 10.0
SHORT_TOKENS, LONG_TOKENS = 30, 200
"""Tokens of a short and of a long answer. At one rate of tokens, short answers mean more requests, and a front spends
more time on requests than on tokens."""


@dataclass(frozen=True)
class FrontsPrice:
    """The processor time is that of the front's process, HTTP included, at RATE tokens a second. The goal is for short
    answers."""

    model: str = "spark"
    pairs: int = 20
    tokens: int = 200
    name: str = "price"
    goal: str = f"TTFT <= {TTFT_MS:g} ms, ITL p50 <= {ITL_MS:g} ms, <= {CPU_SHARE:.0%} of a core at {RATE:g} tokens/s"
    minutes: float = 0.6
    words: Sequence[str] = field(default=("--kv-memory", "256MB"))

    def run(self, note: Note) -> Outcome:
        """See Case."""
        runs: dict[str, list[Stream]] = {"alone": [], "front": []}
        with serving(self.model, *self.words) as alone, serving(self.model, *self.words, replicas=1) as front:
            for server in (alone, front):
                server.stream(PROMPT, self.tokens)
            for number in range(self.pairs):
                note(f"pair {number + 1} of {self.pairs}")
                runs["alone"].append(alone.stream(PROMPT, self.tokens))
                runs["front"].append(front.stream(PROMPT, self.tokens))
            note(f"{RATE:g} tokens a second for {RATE_S:g} s")
            shares = {
                "alone_cpu_share": self._share(alone, SHORT_TOKENS),
                "front_cpu_share": self._share(front, SHORT_TOKENS),
                "front_cpu_share_of_long_answers": self._share(front, LONG_TOKENS),
            }
        figures = {}
        for name, streams in runs.items():
            figures[f"{name}_ttft_ms"] = 1e3 * statistics.median(each.times_s[0] for each in streams)
            gaps = [gap for each in streams for gap in gaps_of(each.times_s)]
            figures[f"{name}_itl_p50_ms"] = 1e3 * statistics.median(gaps)
        figures["price_ttft_ms"] = figures["front_ttft_ms"] - figures["alone_ttft_ms"]
        figures["price_itl_p50_ms"] = figures["front_itl_p50_ms"] - figures["alone_itl_p50_ms"]
        reached = figures["price_ttft_ms"] <= TTFT_MS and figures["price_itl_p50_ms"] <= ITL_MS
        return Outcome({**figures, **shares}, reached and shares["front_cpu_share"] <= CPU_SHARE)

    def _share(self, server: Server, tokens: int) -> float:
        """Returns the share of a core that the server's own process takes, without its replicas. Requests come at a
        fixed rate, and each asks for `tokens` tokens."""
        begin_s, used_s = time.perf_counter(), processor_s(server.process.pid)
        asked: list[threading.Thread] = []
        while (due_s := len(asked) * tokens / RATE) < RATE_S:
            time.sleep(max(0.0, begin_s + due_s - time.perf_counter()))
            asked.append(threading.Thread(target=server.stream, args=(PROMPT, tokens)))
            asked[-1].start()
        for thread in asked:
            thread.join()
        return (processor_s(server.process.pid) - used_s) / (time.perf_counter() - begin_s)
