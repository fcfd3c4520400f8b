"""A comparison as an SVG picture: a group of bars for each case, a bar for each engine. A line shows the rate that the
machine allows at most."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from twostroke.lab.bench.cases import shown
from twostroke.lab.bench.compare import Row

COLOURS = ("#0b6e4f", "#c8553d", "#4a6fa5", "#b58a2f", "#7a5195")
BAR, GAP, LEFT, WIDTH, TOP = 14, 18, 190, 860, 64


def figure(title: str, found: Sequence[Row]) -> str:
    """Returns an SVG document of the rows measured in tokens a second; each case has its own scale."""
    drawn = [row for row in found if row.case.higher and any(value is not None for value in row.values.values())]
    names = list(dict.fromkeys(name for row in drawn for name in row.values))
    parts = [_legend(names), f'<text x="16" y="24" font-size="16" font-weight="bold">{escape(title)}</text>']
    y = TOP
    for row in drawn:
        parts.append(f'<text x="16" y="{y + 12}">{escape(row.weights)} {escape(row.case.name)}</text>')
        parts.append(_bars(row, names, y))
        y += BAR * sum(value is not None for value in row.values.values()) + GAP
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH}" height="{y + 16}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _legend(names: Sequence[str]) -> str:
    parts = []
    for place, name in enumerate(names):
        x = 16 + 150 * place
        parts.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{COLOURS[place % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 18}" y="46">{escape(name)}</text>')
    x = 16 + 150 * len(names)
    parts.append(f'<line x1="{x}" y1="36" x2="{x}" y2="48" stroke="black" stroke-dasharray="3 2"/>')
    parts.append(f'<text x="{x + 8}" y="46">limit of the machine</text>')
    return "\n".join(parts)


def _bars(row: Row, names: Sequence[str], top: int) -> str:
    measured = [value for value in row.values.values() if value is not None]
    longest = max(measured)
    limit = row.bound.tokens_per_s if row.bound is not None else 0.0
    inside = limit <= 3 * longest
    scale = (WIDTH - 140) / max(longest, limit if inside else 0.0)
    parts, y = [], top
    for place, name in enumerate(names):
        value = row.values.get(name)
        if value is None:
            continue
        width = max(1.0, value * scale)
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 10}">{shown(value, row.case.unit)}</text>')
        y += BAR
    if limit and inside:
        x = LEFT + limit * scale
        line = f'<line x1="{x:.1f}" y1="{top - 2}" x2="{x:.1f}" y2="{y}" stroke="black" stroke-dasharray="3 2"/>'
        parts.append(line)
    return "\n".join(parts)
