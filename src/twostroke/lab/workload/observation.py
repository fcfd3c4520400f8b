"""What was seen of one request, by a client with a clock or by a simulator with a virtual one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one request. Times are seconds from the run's beginning.

    intended_s: the time at which it should have been sent. sent_s: the time at which it was sent. ended_s: the end of
    the answer, or of the failure. times_s: arrivals of the answer's chunks, rising. counts: the tokens of each chunk, 0
    for a chunk without text; empty where each chunk is one token. prompt_tokens, output_tokens: the server's counts
    (usage); None where it sent none. error: why there is no whole answer; empty for a whole one. priority: 0 is
    interactive work, above 0 is batch work. asked_again: whether the request was sent a second time, because the server
    closed the first connection before any byte of an answer.
    """

    intended_s: float
    sent_s: float
    ended_s: float
    times_s: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    status: int = 200
    error: str = ""
    priority: int = 0
    asked_again: bool = False

    @property
    def whole(self) -> bool:
        """Whether the request has an answer that ended normally."""
        return not self.error

    @property
    def arrivals(self) -> tuple[tuple[float, int], ...]:
        """Pairs (time_s, tokens) of the chunks that held text."""
        if not self.counts:
            return tuple((time_s, 1) for time_s in self.times_s)
        return tuple((time_s, count) for time_s, count in zip(self.times_s, self.counts, strict=True) if count)

    @property
    def tokens(self) -> int:
        """The number of output tokens by usage, or else of the tokens that arrived."""
        if self.output_tokens is not None:
            return self.output_tokens
        return sum(self.counts) if self.counts else len(self.times_s)

    @property
    def ttft_s(self) -> float | None:
        """The seconds from the intended send to the first text; None without text."""
        arrivals = self.arrivals
        return arrivals[0][0] - self.intended_s if arrivals else None

    @property
    def e2e_s(self) -> float | None:
        """The seconds from the intended send to the last text; None without text."""
        arrivals = self.arrivals
        return arrivals[-1][0] - self.intended_s if arrivals else None

    @property
    def tpot_s(self) -> float | None:
        """(E2E - TTFT) / (tokens - 1); None for less than two tokens."""
        arrivals = self.arrivals
        return (arrivals[-1][0] - arrivals[0][0]) / (self.tokens - 1) if arrivals and self.tokens > 1 else None

    @property
    def gaps_s(self) -> list[float]:
        """The seconds between consecutive tokens. Tokens of one chunk came together, so the gaps between them are 0."""
        found: list[float] = []
        before_s: float | None = None
        for time_s, count in self.arrivals:
            if before_s is not None:
                found.append(time_s - before_s)
            found.extend([0.0] * (count - 1))
            before_s = time_s
        return found
