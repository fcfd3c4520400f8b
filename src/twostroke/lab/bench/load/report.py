"""The report of one load run as text and JSON: its latencies and rates, also by the definitions of other tools, its
settings, and the counted tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twostroke.lab.bench.load.server import Facts
from twostroke.lab.bench.load.session import Measured
from twostroke.lab.workload.definitions import ToolFigures, other_tools
from twostroke.lab.workload.figures import Figures, figures
from twostroke.lab.workload.figures_text import figures_text
from twostroke.lab.workload.objectives import Objectives

VERSION = 1
PERCENTILES = "percentiles by linear interpolation; times in seconds; TTFT and E2E from the intended send time"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The report of one run. load: a description of what was sent. settings: plain values with which the run can be
    repeated."""

    facts: Facts
    load: str
    settings: Mapping[str, Any]
    measured: Measured
    figures: Figures
    tools: tuple[ToolFigures, ...]

    @property
    def asked_again(self) -> int:
        """The number of requests that were sent a second time, because a kept connection ended before any byte of an
        answer."""
        return sum(seen.asked_again for seen in self.measured.seen)

    def text(self) -> str:
        """The report for a terminal."""
        lines = [f"{self.facts.model} at {self.facts.base_url}: {self.load}"]
        if self.measured.interrupted:
            lines.append(
                f"interrupted: {self.measured.cut} requests under way were given up and are not in the figures"
            )
        if self.asked_again:
            lines.append(
                f"{self.asked_again} requests were asked again on a fresh connection: the server had closed the kept "
                "one before any byte of an answer; their times run from the first send"
            )
        lines += [figures_text(self.figures, self.tools), "", *self.token_lines()]
        if self.measured.guesses is not None and self.measured.guesses.guessed > 0:
            lines.append(self.measured.guesses.text())
        return "\n".join(lines)

    def token_lines(self) -> list[str]:
        """Returns lines that compare the server's token counts with the lengths that were asked for."""
        measured = self.measured
        lines = []
        for name, asked, counted in (
            ("prompt", "prompt_tokens", "prompt_tokens"),
            ("output", "output_tokens", "output_tokens"),
        ):
            off = [
                getattr(seen, counted) - getattr(measured.asked[index], asked)
                for seen, index in zip(measured.seen, measured.indexes, strict=True)
                if seen.whole and getattr(seen, counted) is not None
            ]
            if off:
                exact = sum(value == 0 for value in off)
                far = max(off, key=abs)
                rest = "" if exact == len(off) else f"; furthest {far:+d}"
                lines.append(f"{name} tokens by usage are as asked in {exact} of {len(off)} answers{rest}")
        if measured.clipped:
            lines.append(
                f"{measured.clipped} requests were shortened to the server's context of "
                f"{self.facts.context_tokens:,} tokens"
            )
        return lines

    def as_json(self, requests: bool = True) -> dict[str, Any]:
        """The report as plain values. requests: whether it also has an entry for each request."""
        value: dict[str, Any] = {
            "version": VERSION,
            "server": {"base_url": self.facts.base_url, "model": self.facts.model},
            "load": self.load,
            "settings": dict(self.settings),
            "interrupted": self.measured.interrupted,
            "cut": self.measured.cut,
            "asked_again": self.asked_again,
            "definitions": PERCENTILES,
            "figures": self.figures.as_json(),
            "tokens": self.token_lines(),
            "guesses": None if self.measured.guesses is None else self.measured.guesses.as_json(),
            "other_tools": [tool.as_json() for tool in self.tools],
        }
        if requests:
            value["requests"] = [self._request(place) for place in range(len(self.measured.seen))]
        return value

    def _request(self, place: int) -> dict[str, Any]:
        seen, index = self.measured.seen[place], self.measured.indexes[place]
        asked = self.measured.asked[index]
        return {
            "index": index,
            "asked_prompt_tokens": asked.prompt_tokens,
            "asked_output_tokens": asked.output_tokens,
            "priority": asked.priority,
            "intended_s": round(seen.intended_s, 6),
            "sent_s": round(seen.sent_s, 6),
            "ended_s": round(seen.ended_s, 6),
            "times_s": [round(time_s, 6) for time_s in seen.times_s],
            "counts": list(seen.counts),
            "prompt_tokens": seen.prompt_tokens,
            "output_tokens": seen.output_tokens,
            "cached_tokens": seen.cached_tokens,
            "status": seen.status,
            "error": seen.error,
            "asked_again": seen.asked_again,
        }


def make_report(
    facts: Facts, load: str, settings: Mapping[str, Any], measured: Measured, objectives: Objectives
) -> LoadReport:
    """The report of one run."""
    found, tools = figures(measured.seen, objectives), other_tools(measured.seen, objectives)
    return LoadReport(facts, load, settings, measured, found, tools)
