"""The figures of the same observations under other tools' definitions, to be read next to ours.

Their sources were read: vLLM `bench serve` (benchmarks/serve.py and lib/endpoint_request_func.py, 2026), AIPerf's
metric classes, GuideLLM 0.8.1 (schemas/base/request_stats.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twostroke.lab.workload.figures import run_seconds
from twostroke.lab.workload.objectives import Objectives
from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.summary import Summary, summary, weighted_summary


@dataclass(frozen=True, slots=True)
class ToolFigure:
    """One measured figure, such as the TTFT, as another benchmark tool defines it. meaning: how this definition differs
    from that of our figure with the same name."""

    name: str
    meaning: str
    value: Summary | None


@dataclass(frozen=True, slots=True)
class ToolFigures:
    """The figures of one run by another benchmark tool's definitions, in seconds. goodput_per_s: the goodput under the
    tool's own rule; None where no objective for TTFT, TPOT or E2E is set, or where the run took no time."""

    tool: str
    figures: tuple[ToolFigure, ...]
    goodput_per_s: float | None
    goodput_meaning: str

    def as_json(self) -> dict[str, Any]:
        """Returns the tool's name, its figures and its goodput as plain values."""
        return asdict(self)


def other_tools(seen: Sequence[Observation], objectives: Objectives | None = None) -> tuple[ToolFigures, ...]:
    """Returns the figures by the definitions of vLLM bench, AIPerf and GuideLLM."""
    whole = [each for each in seen if each.whole and each.times_s]
    wanted = objectives or Objectives()
    duration_s = run_seconds(seen)
    return (_vllm(whole, wanted, duration_s), _aiperf(whole, wanted, duration_s), _guidellm(whole, wanted, duration_s))


def _vllm(whole: Sequence[Observation], wanted: Objectives, duration_s: float) -> ToolFigures:
    def ttft(each: Observation) -> float:
        return each.times_s[0] - each.sent_s

    def tpot(each: Observation) -> float | None:
        return (each.times_s[-1] - each.times_s[0]) / (each.tokens - 1) if each.tokens > 1 else None

    def e2e(each: Observation) -> float:
        return each.times_s[-1] - each.sent_s

    gaps = [b - a for each in whole for a, b in zip(each.times_s, each.times_s[1:], strict=False)]
    rules = ((wanted.ttft_s, ttft), (wanted.tpot_s, lambda each: tpot(each) or 0.0), (wanted.e2e_s, e2e))
    return ToolFigures(
        "vllm bench serve",
        (
            ToolFigure("TTFT", "from the actual send to the first chunk, with text or without", _of(whole, ttft)),
            ToolFigure("ITL", "gaps between chunks, whatever they hold, the closing one too", summary(gaps)),
            ToolFigure("TPOT", "to the closing chunk", _of(whole, tpot)),
            ToolFigure("E2EL", "from the actual send to the closing chunk", _of(whole, e2e)),
        ),
        _goodput(whole, rules, duration_s),
        "a one-token request counts as good; there is no objective for ITL",
    )


def _to_first_text(each: Observation) -> float | None:
    return each.arrivals[0][0] - each.sent_s if each.arrivals else None


def _aiperf(whole: Sequence[Observation], wanted: Objectives, duration_s: float) -> ToolFigures:
    def latency(each: Observation) -> float:
        return each.times_s[-1] - each.sent_s

    def itl(each: Observation) -> float | None:
        first = _to_first_text(each)
        return (latency(each) - first) / (each.tokens - 1) if first is not None and each.tokens > 1 else None

    gaps = [
        after[0] - before[0] for each in whole for before, after in zip(each.arrivals, each.arrivals[1:], strict=False)
    ]
    rules = ((wanted.ttft_s, _to_first_text), (wanted.tpot_s, itl), (wanted.e2e_s, latency))
    return ToolFigures(
        "aiperf",
        (
            ToolFigure("TTFT", "from the actual send to the first text", _of(whole, _to_first_text)),
            ToolFigure("ITL", "our TPOT: one mean a request, to the closing chunk", _of(whole, itl)),
            ToolFigure("ICL", "gaps between chunks with text", summary(gaps)),
            ToolFigure("request latency", "from the actual send to the closing chunk", _of(whole, latency)),
        ),
        _goodput(whole, rules, duration_s),
        "its inter_token_latency is held to our TPOT objective",
    )


def _guidellm(whole: Sequence[Observation], wanted: Objectives, duration_s: float) -> ToolFigures:
    def itl(each: Observation) -> float | None:
        return each.tpot_s

    def tpot(each: Observation) -> float | None:
        arrivals = each.arrivals
        return (arrivals[-1][0] - each.sent_s) / each.tokens if arrivals and each.tokens else None

    def latency(each: Observation) -> float:
        return each.ended_s - each.sent_s

    itls = [(value, each.tokens - 1.0) for each in whole if (value := itl(each)) is not None]
    tpots = [(value, float(each.tokens)) for each in whole if (value := tpot(each)) is not None]
    judged = [each for each in whole if wanted.tpot_s is None or itl(each) is not None]
    rules = ((wanted.ttft_s, _to_first_text), (wanted.tpot_s, itl), (wanted.e2e_s, latency))
    return ToolFigures(
        "guidellm",
        (
            ToolFigure("TTFT", "from the actual send to the first text", _of(whole, _to_first_text)),
            ToolFigure("ITL", "our TPOT, each request weighted by its gaps", weighted_summary(itls)),
            ToolFigure("TPOT", "(last text - send) / tokens: TTFT is in it", weighted_summary(tpots)),
            ToolFigure("request latency", "from the actual send to the end of the stream", _of(whole, latency)),
        ),
        _goodput(judged, rules, duration_s),
        "its tpot is held to its ITL; a one-token request is left out",
    )


_Rule = tuple[float | None, Callable[[Observation], float | None]]


def _of(whole: Sequence[Observation], read: Callable[[Observation], float | None]) -> Summary | None:
    return summary([value for each in whole if (value := read(each)) is not None])


def _goodput(whole: Sequence[Observation], rules: Sequence[_Rule], duration_s: float) -> float | None:
    asked = [(limit, read) for limit, read in rules if limit is not None]
    if not asked or duration_s <= 0:
        return None
    good = sum(all((value := read(each)) is not None and value <= limit for limit, read in asked) for each in whole)
    return good / duration_s
