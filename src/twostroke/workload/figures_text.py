"""Figures in words: ours as a table, the other tools' below it.

Knows: Figures, ToolFigures.
Must not know: terminals, files, how the run was made.
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.workload.definitions import ToolFigures
from twostroke.workload.figures import Figures
from twostroke.workload.summary import Summary

HEAD = f"{'':<16}{'mean':>9}{'p50':>9}{'p90':>9}{'p95':>9}{'p99':>9}{'most':>9}"
NEAR_ONE = 0.02


def figures_text(found: Figures, tools: Sequence[ToolFigures] = ()) -> str:
    """Several lines, milliseconds."""
    lines = [
        f"{found.completed} of {found.requests} requests answered in {found.duration_s:,.1f} s: "
        f"{found.requests_per_s:,.2f} requests/s, {found.busy_mean:,.1f} under way, {found.busy_most} at most",
        *(f"  {count} failed: {why}" for why, count in sorted(found.errors.items(), key=lambda each: -each[1])),
        f"{found.prompt_tokens:,} prompt tokens ({found.prompt_tokens_per_s:,.1f}/s; {found.cached_tokens:,} cached), "
        f"{found.output_tokens:,} output tokens ({found.output_tokens_per_s:,.1f}/s)",
        *_warnings(found),
        "",
        f"milliseconds{HEAD[12:]}",
        _row("TTFT", found.ttft),
        _row("ITL", found.itl),
        _row("TPOT", found.tpot),
        _row("E2E", found.e2e),
        _row("sent late by", found.send_late),
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
            lines.append(f"{_row('  ' + each.name, each.value)}   {each.meaning}")
        if tool.goodput_per_s is not None:
            lines.append(f"  goodput {tool.goodput_per_s:,.2f} requests/s: {tool.goodput_meaning}")
    return "\n".join(lines)


def _warnings(found: Figures) -> list[str]:
    said = []
    if found.uncounted:
        said.append(f"  {found.uncounted} answers came without usage: chunks were counted as tokens")
    if found.chunk_tokens is not None and abs(found.chunk_tokens - 1) > NEAR_ONE and not found.uncounted:
        said.append(
            f"  {found.chunk_tokens:.2f} tokens a chunk: TPOT is of tokens, ITL as far as the server tells each "
            "chunk's count"
        )
    return said


def _row(name: str, value: Summary | None) -> str:
    if value is None:
        return f"{name:<16}{'-':>9}"
    cells = (value.mean, value.p50, value.p90, value.p95, value.p99, value.high)
    return f"{name:<16}" + "".join(f"{_ms(cell):>9}" for cell in cells)


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
