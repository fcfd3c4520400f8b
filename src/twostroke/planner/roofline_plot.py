"""A roofline as a picture: the roof of one target, and a point for each phase. SVG, by hand.

Knows: SVG, logarithms, expectations.
Must not know: how figures come about, files.
"""

from __future__ import annotations

import math
from html import escape

from twostroke.planner.expect import Expectation, Phase

COLOURS = ("#c8553d", "#4a6fa5", "#0b6e4f")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 520, 90, 64, 40, 70
DECADES_X = (-1, 5)


class Axes:
    """Maps (FLOPs a byte, FLOPs a second) to the picture; both axes are logarithmic."""

    def __init__(self, lowest: float, highest: float) -> None:
        self.low, self.high = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))

    def x(self, intensity: float) -> float:
        """Pixels from the left."""
        share = (math.log10(intensity) - DECADES_X[0]) / (DECADES_X[1] - DECADES_X[0])
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, flops_per_s: float) -> float:
        """Pixels from the top."""
        share = (math.log10(flops_per_s) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - min(1.0, max(0.0, share)) * (HEIGHT - TOP - BOTTOM)


def roofline_svg(title: str, found: Expectation) -> str:
    """An SVG document."""
    peak = found.prefill.ridge_flops_per_byte * found.target.read_bytes_per_s
    slope = found.target.read_bytes_per_s
    phases = list({phase.streams: phase for phase in (found.decode_one, found.decode)}.values())
    named = [(f"decode, {p.streams} stream{'s' if p.streams > 1 else ''}", p) for p in phases]
    named.append(("prefill", found.prefill))
    axes = Axes(min(slope * 10 ** DECADES_X[0], *(_reached(phase) for _, phase in named)), 2 * peak)
    parts = [_frame(axes), _roof(axes, slope, peak, found.prefill.ridge_flops_per_byte)]
    parts += [_point(axes, name, phase, COLOURS[at % 3], at) for at, (name, phase) in enumerate(named)]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="16" y="24" font-size="16" font-weight="bold">{escape(title)}</text>\n'
        f'<text x="16" y="44" fill="#555">line: what {escape(found.target.title)} allows; '
        f"points: what is expected</text>\n{body}\n</svg>\n"
    )


def _reached(phase: Phase) -> float:
    return phase.work.flops / phase.seconds


def _frame(axes: Axes) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for decade in range(DECADES_X[0], DECADES_X[1] + 1):
        x = axes.x(10.0**decade)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10.0**decade:g}</text>')
    for decade in range(axes.low, axes.high + 1):
        y = axes.y(10.0**decade)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_flops(10.0**decade)}</text>')
    parts.append(
        f'<text x="{(LEFT + right) / 2}" y="{bottom + 44}" text-anchor="middle">FLOPs for each byte read</text>'
    )
    parts.append(f'<text x="{LEFT - 70}" y="{TOP - 8}">FLOPs a second</text>')
    return "\n".join(parts)


def _roof(axes: Axes, slope: float, peak: float, ridge: float) -> str:
    first, last = 10.0 ** DECADES_X[0], 10.0 ** DECADES_X[1]
    points = " ".join(
        f"{axes.x(intensity):.1f},{axes.y(min(peak, slope * intensity)):.1f}" for intensity in (first, ridge, last)
    )
    x, y = axes.x(ridge), axes.y(peak)
    return (
        f'<polyline points="{points}" fill="none" stroke="black" stroke-width="2"/>\n'
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="black" stroke-dasharray="3 2"/>\n'
        f'<text x="{x + 6:.1f}" y="{HEIGHT - BOTTOM - 8}">ridge {ridge:,.0f}</text>'
    )


def _point(axes: Axes, name: str, phase: Phase, colour: str, place: int) -> str:
    x, y = axes.x(phase.intensity_flops_per_byte), axes.y(_reached(phase))
    words = f"{name}: {phase.rate_tokens_per_s:,.4g} tok/s"
    left = x > WIDTH - RIGHT - 220
    at, anchor = (x - 10, "end") if left else (x + 10, "start")
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>\n'
        f'<text x="{at:.1f}" y="{y + 18 + 3 * place:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
    )


def _flops(value: float) -> str:
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g}"
