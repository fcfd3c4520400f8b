"""A drawing as an SVG document."""

from __future__ import annotations

from html import escape

from twostroke.lab.planner.pictures.drawing import Dot, Drawing, Stroke, Words


def as_svg(drawing: Drawing) -> bytes:
    """Returns the document in UTF-8."""
    body = "\n".join(_shape(shape) for shape in drawing.shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawing.width}" height="{drawing.height}" '
        f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    ).encode()


def _shape(shape: Stroke | Dot | Words) -> str:
    if isinstance(shape, Dot):
        return f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}" fill="{shape.colour}"/>'
    if isinstance(shape, Stroke):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dashes = ' stroke-dasharray="3 2"' if shape.dashed else ""
        look = f'stroke="{shape.colour}" stroke-width="{shape.width:g}"{dashes}'
        return f'<polyline points="{points}" fill="none" {look}/>'
    weight = ' font-weight="bold"' if shape.bold else ""
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}"'
    return f'<text {place} font-size="{shape.pixels}" fill="{shape.colour}"{weight}>{escape(shape.text)}</text>'
