"""A roofline as a picture: the most FLOPs a second that one machine allows, and a point for each phase of a model."""

from __future__ import annotations

import math
from collections.abc import Iterator

from twostroke.lab.planner.expect import Expectation, Phase
from twostroke.lab.planner.pictures.drawing import BLACK, FAINT, GREY, Dot, Drawing, Stroke, Words
from twostroke.lab.planner.plan_text import rate

COLOURS = ("#c8553d", "#4a6fa5", "#0b6e4f")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 520, 90, 64, 40, 70
DECADES_X = (-1, 5)

Shape = Stroke | Dot | Words


class Axes:
    """Maps (FLOPs a byte, FLOPs a second) to the picture; both axes are logarithmic."""

    def __init__(self, lowest: float, highest: float) -> None:
        self.low, self.high = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))

    def x(self, intensity: float) -> float:
        """Returns the pixels from the left."""
        share = (math.log10(intensity) - DECADES_X[0]) / (DECADES_X[1] - DECADES_X[0])
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, flops_per_s: float) -> float:
        """Returns where a number of FLOPs a second lies in the picture, in pixels from the top."""
        share = (math.log10(flops_per_s) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - min(1.0, max(0.0, share)) * (HEIGHT - TOP - BOTTOM)


def roofline(title: str, found: Expectation) -> Drawing:
    """Draws the roofline of the planned machine, with a point for each predicted phase: decode of one and of all
    streams, and prefill."""
    peak = found.prefill.ridge_flops_per_byte * found.target.read_bytes_per_s
    slope = found.target.read_bytes_per_s
    phases = list({phase.streams: phase for phase in (found.decode_one, found.decode)}.values())
    named = [(f"decode, {p.streams} stream{'s' if p.streams > 1 else ''}", p) for p in phases]
    named.append(("prefill", found.prefill))
    axes = Axes(min(slope * 10 ** DECADES_X[0], *(_reached(phase) for _, phase in named)), 2 * peak)
    shapes: list[Shape] = [
        Words(16, 24, title, pixels=16, bold=True),
        Words(16, 44, f"line: what {found.target.title} allows; points: what is expected", GREY),
        *_frame(axes),
        *_roof(axes, slope, peak, found.prefill.ridge_flops_per_byte),
    ]
    for place, (name, phase) in enumerate(named):
        shapes += _point(axes, name, phase, COLOURS[place % len(COLOURS)], place)
    return Drawing(WIDTH, HEIGHT, tuple(shapes))


def _reached(phase: Phase) -> float:
    return phase.work.flops / phase.seconds


def _frame(axes: Axes) -> Iterator[Shape]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for decade in range(DECADES_X[0], DECADES_X[1] + 1):
        x = axes.x(10.0**decade)
        yield Stroke(((x, TOP), (x, bottom)), FAINT)
        yield Words(x, bottom + 18, f"{10.0**decade:g}", anchor="middle")
    for decade in range(axes.low, axes.high + 1):
        y = axes.y(10.0**decade)
        yield Stroke(((LEFT, y), (right, y)), FAINT)
        yield Words(LEFT - 8, y + 4, _flops(10.0**decade), anchor="end")
    yield Words((LEFT + right) / 2, bottom + 44, "FLOPs for each byte read", anchor="middle")
    yield Words(LEFT - 70, TOP - 5, "FLOPs a second")


def _roof(axes: Axes, slope: float, peak: float, ridge: float) -> Iterator[Shape]:
    first, last = 10.0 ** DECADES_X[0], 10.0 ** DECADES_X[1]
    yield Stroke(tuple((axes.x(at), axes.y(min(peak, slope * at))) for at in (first, ridge, last)), BLACK, 2)
    x, y = axes.x(ridge), axes.y(peak)
    yield Stroke(((x, y), (x, HEIGHT - BOTTOM)), dashed=True)
    yield Words(x + 6, HEIGHT - BOTTOM - 8, f"ridge {ridge:,.0f}")


def _point(axes: Axes, name: str, phase: Phase, colour: str, place: int) -> Iterator[Shape]:
    x, y = axes.x(phase.intensity_flops_per_byte), axes.y(_reached(phase))
    words = f"{name}: {rate(phase.rate_tokens_per_s)}"
    left = x > WIDTH - RIGHT - 220
    at, anchor = (x - 10, "end") if left else (x + 10, "start")
    yield Dot(x, y, 5, colour)
    yield Words(at, y + 18 + 3 * place, words, colour, anchor)


def _flops(value: float) -> str:
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g}"
