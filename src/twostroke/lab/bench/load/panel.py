"""One panel of an SVG picture: two linear axes from zero, lines of points, labels that do not overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

LEFT, RIGHT, TOP, BOTTOM = 64, 24, 48, 48
LABEL_HEIGHT, LABEL_CHARACTER = 13, 6.5
TICKS = 5
TINY = 1e-12

Place = Callable[[tuple[float, float]], tuple[float, float]]
Box = tuple[float, float, float, float]
"""The edges of a box: left, top, right, bottom."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of points in order. labels: one for each point, or none. dashed: whether the line is a prediction; other
    lines are measured and have dots."""

    points: tuple[tuple[float, float], ...]
    colour: str
    dashed: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a picture, `width` by `height` pixels. least_x_step: the least step between two ticks of x; 1 where x
    is a count."""

    title: str
    x_name: str
    y_name: str
    lines: tuple[Line, ...]
    width: int = 430
    height: int = 320
    least_x_step: float = 0.0

    def svg(self, left: int, top: int) -> str:
        """Returns the panel as an SVG group whose upper left corner is (left, top)."""
        x_step, x_count = steps([x for line in self.lines for x, _ in line.points], self.least_x_step)
        y_step, y_count = steps([y for line in self.lines for _, y in line.points])
        inner_w, inner_h = self.width - LEFT - RIGHT, self.height - TOP - BOTTOM

        def place(point: tuple[float, float]) -> tuple[float, float]:
            x, y = point
            return LEFT + inner_w * x / (x_step * x_count), TOP + inner_h * (1 - y / (y_step * y_count))

        parts = [f'<g transform="translate({left} {top})">', *self._frame()]
        for index in range(x_count + 1):
            x, y = place((x_step * index, 0))
            parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#e8e8e8"/>')
            parts.append(_text(x, y + 16, tick(x_step * index, x_step), "middle"))
        for index in range(y_count + 1):
            x, y = place((0, y_step * index))
            right = self.width - RIGHT
            parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e8e8e8"/>')
            parts.append(_text(x - 6, y + 4, tick(y_step * index, y_step), "end"))
        for line in self.lines:
            parts += _drawn(line, [place(point) for point in line.points])
        parts += _labels(self.lines, place, (LEFT, TOP - 6, self.width - 2, self.height - BOTTOM))
        return "\n".join([*parts, "</g>"])

    def _frame(self) -> list[str]:
        return [
            f'<text x="{LEFT - 52}" y="18" font-weight="bold">{escape(self.title)}</text>',
            f'<text x="{LEFT - 52}" y="36" fill="#555">{escape(self.y_name)}</text>',
            _text((LEFT + self.width - RIGHT) / 2, self.height - BOTTOM + 36, self.x_name, "middle"),
        ]


def steps(values: Sequence[float], least: float = 0.0) -> tuple[float, int]:
    """Returns a round step and the number of steps that cover every value from zero on. A step is 1, 2 or 5 times a
    power of ten, and not below `least`."""
    most = max([value for value in values if math.isfinite(value)], default=0.0)
    if most <= TINY:
        return 1.0, 1
    rough = max(most / TICKS, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999), 10 * power)
    return step, max(1, math.ceil(most / step - 1e-9))


def tick(value: float, step: float) -> str:
    """Returns the text of a value, with as many decimals as the step between ticks needs."""
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def _drawn(line: Line, places: Sequence[tuple[float, float]]) -> list[str]:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dash = ' stroke-dasharray="6 4"' if line.dashed else ""
    parts = [f'<polyline points="{joined}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>']
    radius, fill = (3, "white") if line.dashed else (4, line.colour)
    parts += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{line.colour}"/>' for x, y in places
    ]
    return parts


def _labels(lines: Sequence[Line], place: Place, edges: Box) -> list[str]:
    """Returns the labels, each next to its point where no other label, line or point is. A label without room is left
    out. Measured lines choose first."""
    places = [[place(point) for point in line.points] for line in lines]
    taken = [box for along in places for box in _covered(along)]
    parts = []
    for line, along in sorted(zip(lines, places, strict=True), key=lambda pair: pair[0].dashed):
        for words, (x, y) in zip(line.labels, along, strict=False):
            width = LABEL_CHARACTER * len(words)
            for left, bottom in (
                (x + 8, y + 6),
                (x - 8 - width, y + 6),
                (x - width / 2, y - 7),
                (x - width / 2, y + 20),
            ):
                box = _box(left, bottom, width, LABEL_HEIGHT)
                inside = edges[0] < box[0] and edges[1] < box[1] and box[2] < edges[2] and box[3] < edges[3]
                if inside and not any(_meet(box, other) for other in taken):
                    taken.append(box)
                    words_at = f'x="{left:.1f}" y="{bottom - 3:.1f}"'
                    parts.append(f'<text {words_at} font-size="11" fill="{line.colour}">{escape(words)}</text>')
                    break
    return parts


def _covered(along: Sequence[tuple[float, float]]) -> list[Box]:
    """Returns small boxes that cover the points and the lines between them, so that no label is placed there."""
    boxes = [_box(x - 5, y + 5, 10, 10) for x, y in along]
    for (x0, y0), (x1, y1) in zip(along, along[1:], strict=False):
        count = 1 + int(max(abs(x1 - x0), abs(y1 - y0)) / 5)
        for index in range(1, count):
            x, y = x0 + (x1 - x0) * index / count, y0 + (y1 - y0) * index / count
            boxes.append(_box(x - 2, y + 2, 4, 4))
    return boxes


def _box(left: float, bottom: float, width: float, height: float) -> Box:
    return left, bottom - height, left + width, bottom


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11">{escape(words)}</text>'
