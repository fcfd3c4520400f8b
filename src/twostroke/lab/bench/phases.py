"""Measures prefill and decode separately on the real engine.

Prefill: one request, tokens of its prompt / (first token - first scheduled). Decode: B requests; tokens that came while
all B were decoding / that time. Random token ids, greedy, end tokens ignored; every prompt is new, so no prefix is
shared.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from twostroke.backends.cpu.limits import LimitMeter, Limits
from twostroke.lab.bench.cases import bound, decode, prefill
from twostroke.lab.bench.memory import peak_bytes
from twostroke.llm import LLM
from twostroke.ops.quant.formats import STORED, weight_format
from twostroke.types.errors import ConfigError
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

Note = Callable[[str], None]

PhaseCase = tuple[str, int, int]
"""A triple ("prefill" or "decode", number of sequences, number of tokens)."""


@dataclass(frozen=True, slots=True)
class PhasesAsked:
    """The cases to measure. context: the number of tokens in the cache where decode starts. new_tokens: the tokens that
    each stream decodes. rounds: the number of measured rounds after the warm-up."""

    prompt_lengths: tuple[int, ...]
    batches: tuple[int, ...]
    context: int
    new_tokens: int
    rounds: int

    @property
    def longest(self) -> int:
        """The tokens of the longest sequence of any case, prompt and answer together."""
        return max(*self.prompt_lengths, self.context) + self.new_tokens


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """The rates of one case, in tokens a second, medians over the rounds. batch: the number of sequences. tokens:
    prompt length (prefill) or context (decode). limit_tokens_per_s: what the machine allows; limit: whether bandwidth
    or arithmetic decides that."""

    phase: str
    batch: int
    tokens: int
    tokens_per_s: float
    slowest_tokens_per_s: float
    fastest_tokens_per_s: float
    limit_tokens_per_s: float
    limit: str

    @property
    def share_of_limit(self) -> float:
        """The measured rate divided by the rate that the machine's bandwidth and arithmetic allow."""
        return self.tokens_per_s / self.limit_tokens_per_s


@dataclass(frozen=True, slots=True)
class PhasesReport:
    """The figures of all cases, and the memory used. peak_bytes: the largest resident size. expected_bytes: packed
    weights and KV pool."""

    model: str
    settings: dict[str, Any]
    limits: Limits
    rounds: int
    figures: tuple[PhaseFigures, ...]
    peak_bytes: int
    expected_bytes: int

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return asdict(self)


class PhaseBench:
    """Measures cases of prefill and decode on one loaded model."""

    def __init__(self, llm: LLM, clock: Callable[[], float], seed: int = 0) -> None:
        self._llm = llm
        self._clock = clock
        self._random = random.Random(seed)

    def run(self, asked: PhasesAsked, note: Note) -> PhasesReport:
        """Measures every case once in each round, then the machine's limits. The first round is a warm-up and does not
        count.

        Raises ConfigError where a case is longer than the engine's context.
        """
        speeds: dict[PhaseCase, list[float]] = {case: [] for case in self.cases(asked)}
        self._llm.settle()
        for number in range(asked.rounds + 1):
            for case, found in speeds.items():
                note(f"round {number} of {asked.rounds}: {case[0]}, batch {case[1]}, {case[2]} tokens")
                speed = self.speed(case, asked.new_tokens)
                if number:
                    found.append(speed)
        peak = peak_bytes()  # read before the limits, because reading those needs memory
        limits = self._limits(note)
        figures = tuple(self._figures(case, found, asked.new_tokens, limits) for case, found in speeds.items())
        settings = {setting.name: setting.value for setting in self._llm.resolved.settings}
        expected = self._llm.resolved.memory.weight_bytes + self._llm.resolved.cache.kv_memory
        return PhasesReport(self._llm.model_name, settings, limits, asked.rounds, figures, peak, expected)

    def cases(self, asked: PhasesAsked) -> list[PhaseCase]:
        """Returns the cases that are asked for. Raises ConfigError where a case is longer than the engine's context."""
        room, longest = self._llm.resolved.steps.context, asked.longest
        if longest > room:
            raise ConfigError(
                f"The longest case needs {longest} tokens; the context is {room}.", fix="Ask for shorter cases."
            )
        prefills: list[PhaseCase] = [("prefill", 1, length) for length in asked.prompt_lengths]
        return [*prefills, *(("decode", batch, asked.context) for batch in asked.batches)]

    def speed(self, case: PhaseCase, new_tokens: int) -> float:
        """Measures one case once. Returns tokens a second."""
        return self._prefill(case[2]) if case[0] == "prefill" else self._decode(case[1], case[2], new_tokens)

    def _limits(self, note: Note) -> Limits:
        note("the machine's limits")
        meter = LimitMeter(self._llm.resolved.cpu.threads, self._clock)
        try:
            return meter.measure()
        finally:
            meter.close()

    def _figures(self, case: PhaseCase, found: list[float], new_tokens: int, limits: Limits) -> PhaseFigures:
        phase, batch, tokens = case
        asked = prefill(tokens) if phase == "prefill" else decode(batch, tokens, new_tokens)
        resolved = self._llm.resolved
        chosen = None if resolved.model.weights == STORED else weight_format(resolved.model.weights)
        formats = (chosen, resolved.cache.kind)
        limit = bound(asked, self._llm.spec, *formats, limits)
        if limit is None:
            raise RuntimeError(f"no limit is known for {phase}")
        reached = (statistics.median(found), min(found), max(found))
        return PhaseFigures(*case, *reached, limit.tokens_per_s, limit.words)

    def _prompt(self, length: int, new_tokens: int) -> Prompt:
        ids = tuple(self._random.randrange(self._llm.vocab_size) for _ in range(length))
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        return Prompt(ids, params)

    def _prefill(self, length: int) -> float:
        output = self._llm.engine.generate([self._prompt(length, 1)])[0]
        timings = output.completions[0].timings
        if timings is None or timings.first_token_s is None or timings.first_scheduled_s is None:
            raise RuntimeError("a finished request has no timings")
        return length / (timings.first_token_s - timings.first_scheduled_s)

    def _decode(self, batch: int, context: int, new_tokens: int) -> float:
        prompts = [self._prompt(context, new_tokens) for _ in range(batch)]
        # The prompts are read beforehand: else, with many prompts, the first streams would end before the last one
        # begins.
        self._llm.engine.generate([replace(p, params=replace(p.params, max_tokens=1)) for p in prompts])
        arrivals: list[tuple[float, str]] = []
        for delta in self._llm.engine.stream(prompts):
            arrivals += [(self._clock(), delta.request_id)] * len(delta.token_ids)
        return steady_rate(arrivals)


def steady_rate(arrivals: Sequence[tuple[float, str]]) -> float:
    """Returns tokens a second from the moment when every request has its first token to the earliest end of a request.
    """
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for at_s, request_id in arrivals:
        first.setdefault(request_id, at_s)
        last[request_id] = at_s
    begin, end = max(first.values()), min(last.values())
    inside = sum(1 for at_s, _ in arrivals if begin < at_s <= end)
    if inside == 0:
        raise RuntimeError("no token came while all sequences were decoding; ask for more new tokens")
    return inside / (end - begin)
