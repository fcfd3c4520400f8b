"""The latencies and rates of a run as text: a table by our definitions, and below it the same requests by the
definitions of other benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.lab.workload.definitions import ToolFigures
from twostroke.lab.workload.figures import Figures
from twostroke.lab.workload.summary import Summary

HEAD = f"{'':<16}{'mean':>9}{'p50':>9}{'p90':>9}{'p95':>9}{'p99':>9}{'most':>9}"
NEAR_ONE = 0.02
LATE_S = 0.01


def figures_text(found: Figures, tools: Sequence[ToolFigures] = ()) -> str:
    """Returns a benchmark's latencies (in milliseconds), rates and errors as lines of text. tools: the same requests by
    other tools' definitions, for a second table."""
    lines = [
        f"{found.completed} of {found.requests} requests answered in {found.duration_s:,.1f} s: "
        f"{found.requests_per_s:,.2f} requests/s, {found.busy_mean:,.1f} under way, {found.busy_most} at most",
        *(f"  {count} failed: {why}" for why, count in sorted(found.errors.items(), key=lambda each: -each[1])),
        f"{found.prompt_tokens:,} prompt tokens ({found.prompt_tokens_per_s:,.1f}/s; {found.cached_tokens:,} cached), "
        f"{found.output_tokens:,} output tokens ({found.output_tokens_per_s:,.1f}/s)",
        *_warnings(found),
        "",
        f"milliseconds{HEAD[12:]}",
        _row("TTFT", found.ttft, "from the intended send to the first text"),
        _row("ITL", found.itl, "gaps between consecutive tokens, of all requests together"),
        _row("TPOT", found.tpot, "(E2E - TTFT) / (tokens - 1), one a request"),
        _row("E2E", found.e2e, "from the intended send to the last text"),
        _row("sent late by", found.send_late, "the client's own delay, in TTFT and E2E"),
    ]
    if found.good is not None and found.goodput_per_s is not None:
        lines += [
            "",
            f"goodput {found.goodput_per_s:,.2f} requests/s: {found.good} of {found.requests} met "
            f"{found.objectives.words()}",
        ]
    if tools:
        lines += ["", "the same requests under other tools' definitions", HEAD]
    for tool in tools:
        lines.append(tool.tool)
        for each in tool.figures:
            lines.append(_row("  " + each.name, each.value, each.meaning))
        if tool.goodput_per_s is not None:
            lines.append(f"  goodput {tool.goodput_per_s:,.2f} requests/s: {tool.goodput_meaning}")
    return "\n".join(lines)


def _warnings(found: Figures) -> list[str]:
    said = []
    if found.uncounted:
        said.append(f"  {found.uncounted} answers came without usage: chunks were counted as tokens")
    if found.chunk_tokens is not None and abs(found.chunk_tokens - 1) > NEAR_ONE and not found.uncounted:
        said.append(
            f"  {found.chunk_tokens:.2f} tokens a chunk: TPOT is of tokens, ITL as far as the server sends each "
            "chunk's count"
        )
    if found.send_late is not None and found.send_late.p99 > LATE_S:
        said.append(
            f"  the client itself sent late (p99 {1e3 * found.send_late.p99:,.0f} ms), and TTFT and E2E include it: "
            "give it a core of its own"
        )
    return said


def _row(name: str, value: Summary | None, meaning: str) -> str:
    cells = ["-"] * 6
    if value is not None:
        cells = [_ms(cell) for cell in (value.mean, value.p50, value.p90, value.p95, value.p99, value.high)]
    return f"{name:<16}" + "".join(f"{cell:>9}" for cell in cells) + f"   {meaning}"


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
