"""Measures split pools: one process computes prompts, another one decodes. How much of the transfer is hidden is
measured too."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tools.cluster.case import Note, Outcome, gaps_of, percentile
from tools.cluster.processes import ANSWER_S, Server, Stream, front, random_checkpoint, replica
from tools.cluster.proxy import Proxy, proxy

ITL_RATIO, TTFT_RATIO, HIDDEN_SHARE = 1.1, 1.15, 0.95
WORDS = ("--kv-memory", "512MB", "--context", "4k", "--max-step-tokens", "256")
"""Options of each replica. A replica answers for pages between its steps, so steps of few rows hide more of the
transfer."""
SHORT_TOKENS, SHORT_ANSWER, MOST_TOKENS, SETTLE_S = 64, 8, 3000, 1.0
LEAST_BYTES = 1 << 16
SPLIT, WHOLE = ("prefill", "decode"), ("both", "both")


def prompt_of(draws: random.Random, tokens: int) -> list[int]:
    """Returns `tokens` random token ids, with which no other prompt begins."""
    return [draws.randrange(2, 100_000) for _ in range(tokens)]


@contextmanager
def two_replicas(model: str, roles: tuple[str, str]) -> Iterator[tuple[Server, Proxy]]:
    """Run a front with two replicas of one thread each. Gives the front, and the proxy before the first replica."""
    with ExitStack() as closing:
        addresses = [closing.enter_context(replica(model, f"r{i}", role, *WORDS)) for i, role in enumerate(roles)]
        before = closing.enter_context(proxy(addresses[0]))
        yield closing.enter_context(front(model, [before.address, addresses[1]])), before


@contextmanager
def decoding(server: Server, count: int, draws: random.Random) -> Iterator[list[Stream]]:
    """Run `count` streams, which decode until the end of the block. The list holds the streams after the block."""
    found: list[Stream] = []
    over, decodes = threading.Event(), [threading.Event() for _ in range(count)]

    def decode(prompt: list[int], begun: threading.Event) -> None:
        def goes_on() -> bool:
            begun.set()
            return not over.is_set()

        found.append(server.stream(prompt, MOST_TOKENS, goes_on))

    prompts = [prompt_of(draws, SHORT_TOKENS) for _ in range(count)]
    threads = [threading.Thread(target=decode, args=each, daemon=True) for each in zip(prompts, decodes, strict=True)]
    for thread in threads:
        thread.start()
    try:
        if not all(begun.wait(ANSWER_S) for begun in decodes):
            raise SystemExit("the streams did not begin")
        time.sleep(SETTLE_S)
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join()


@dataclass(frozen=True)
class SplitPools:
    """Streams decode while long prompts, each with a short answer, come one after the other. This is measured with two
    replicas that have roles and with two that do everything.

    A step in which a short answer is decoded, too, has one row more, which takes longer where arithmetic is the limit.
    So p99 is also told for the other gaps, as itl_p99_fewer_rows: that figure shows the price of moving pages.
    """

    shape: str = "llama-3.2-1b"
    streams: int = 2
    prompts: int = 5
    prompt_tokens: int = 1024
    name: str = "split"
    goal: str = f"split: ITL p99 <= {ITL_RATIO:g} x p50 of the streams, TTFT of the prompts <= {TTFT_RATIO:g} x whole"
    minutes: float = 1.9

    def run(self, note: Note) -> Outcome:
        """See Case."""
        model, figures = random_checkpoint(self.shape), {}
        for name, roles in (("split", SPLIT), ("whole", WHOLE)):
            note(name)
            with two_replicas(model, roles) as (server, _):
                gaps, fewer, ttft_s = self._beside(server, note)
            figures[f"{name}_itl_p50_ms"] = 1e3 * statistics.median(gaps)
            figures[f"{name}_itl_p99_ms"] = 1e3 * percentile(gaps, 0.99)
            figures[f"{name}_itl_p99_fewer_rows_ms"] = 1e3 * percentile(fewer, 0.99)
            figures[f"{name}_ttft_s"] = statistics.median(ttft_s)
        figures["itl_ratio"] = figures["split_itl_p99_ms"] / figures["split_itl_p50_ms"]
        figures["ttft_ratio"] = figures["split_ttft_s"] / figures["whole_ttft_s"]
        return Outcome(figures, figures["itl_ratio"] <= ITL_RATIO and figures["ttft_ratio"] <= TTFT_RATIO)

    def _beside(self, server: Server, note: Note) -> tuple[list[float], list[float], list[float]]:
        """Returns three lists in seconds: the gaps of the streams while prompts are computed, the gaps among them in
        which no answer to a prompt was decoded, and the TTFT of the prompts."""
        draws, answers = random.Random(2), list[Stream]()
        with decoding(server, self.streams, draws) as streams:
            begin_s = time.perf_counter()
            for number in range(self.prompts):
                note(f"prompt {number + 1} of {self.prompts}")
                answers.append(server.stream(prompt_of(draws, self.prompt_tokens), SHORT_ANSWER))
            end_s = time.perf_counter()
        gaps = [
            (each.begin_s + at_s, gap)
            for each in streams
            for at_s, gap in zip(each.times_s[1:], gaps_of(each.times_s), strict=True)
            if begin_s <= each.begin_s + at_s <= end_s
        ]
        spans = [(each.begin_s + each.times_s[0], each.begin_s + each.times_s[-1]) for each in answers]
        fewer = [gap for at_s, gap in gaps if not any(at_s > first and at_s - gap < last for first, last in spans)]
        if not fewer:
            raise SystemExit("no stream decoded while a prompt was read")
        return [gap for _, gap in gaps], fewer, [each.times_s[0] for each in answers]


@dataclass(frozen=True)
class TransferHidden:
    """One long prompt comes after the other while one stream decodes; without the stream, the front would split none.
    hidden_share: the share of a prompt's transferred bytes that the decoding replica has when the client gets the first
    token. The rate of bytes is the same before and after, so this is also the share of the transfer's time."""

    shape: str = "llama-3.2-1b"
    prompts: int = 4
    prompt_tokens: int = 2048
    name: str = "hidden"
    goal: str = f">= {HIDDEN_SHARE:.0%} of the transfer before the first token"
    minutes: float = 1.2

    def run(self, note: Note) -> Outcome:
        """See Case."""
        draws, shares, late_s, sizes = random.Random(3), [], [], []
        with two_replicas(random_checkpoint(self.shape), SPLIT) as (server, before), decoding(server, 1, draws):
            for number in range(self.prompts):
                note(f"prompt {number + 1} of {self.prompts}")
                answer = server.stream(prompt_of(draws, self.prompt_tokens), SHORT_ANSWER)
                first_s = answer.begin_s + answer.times_s[0]
                # The first connection is the front's.
                pages = [each for notes in before.came[1:] for each in notes if each[0] >= answer.begin_s]
                sizes.append(sum(size for _, size in pages))
                if sizes[-1] < LEAST_BYTES:
                    raise SystemExit("no page went from one replica to the other")
                shares.append(sum(size for at_s, size in pages if at_s <= first_s) / sizes[-1])
                late_s.append(max(0.0, max(at_s for at_s, _ in pages) - first_s))
        figures = {
            "hidden_share": statistics.median(shares),
            "last_byte_after_first_token_ms": 1e3 * statistics.median(late_s),
            "megabytes": statistics.median(sizes) / 1e6,
        }
        return Outcome(figures, figures["hidden_share"] >= HIDDEN_SHARE)
