"""A picture as a list of shapes, independent of the file format in which it is stored."""

from __future__ import annotations

from dataclasses import dataclass

BLACK, GREY, FAINT = "#000000", "#555555", "#e4e4e4"


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line of straight pieces through `points` (pixels from the left and the top)."""

    points: tuple[tuple[float, float], ...]
    colour: str = BLACK
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: str


@dataclass(frozen=True, slots=True)
class Words:
    """One line of text, its baseline at y. anchor: the end of the line that lies at x: "start", "middle" or "end".
    pixels: the font's size."""

    x: float
    y: float
    text: str
    colour: str = BLACK
    anchor: str = "start"
    pixels: int = 12
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing on white. Later shapes cover earlier ones. Colours are #rrggbb."""

    width: int
    height: int
    shapes: tuple[Stroke | Dot | Words, ...]
