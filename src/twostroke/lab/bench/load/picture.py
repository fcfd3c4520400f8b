"""A sweep as a picture: four panels with the measured values and the cost model's predictions."""

from __future__ import annotations

from html import escape
from textwrap import wrap

from twostroke.lab.bench.load.panel import Line, Panel
from twostroke.lab.bench.load.sweep import Sweep

MEASURED, PREDICTED = "#0b6e4f", "#c8553d"
HEAD, GAP, EDGE = 84, 12, 16
WORDS_IN_A_LINE, LINE_HEIGHT = 150, 15


def sweep_svg(found: Sweep) -> str:
    """Returns an SVG document with the panels of a sweep. If no numbers of users, or no prompt lengths, were measured,
    their panels are left out."""
    panels = [*_users_panels(found), *_length_panels(found)]
    columns = 2
    rows = max(1, -(-len(panels) // columns))
    size = panels[0] if panels else Panel("", "", "", ())
    width = 2 * EDGE + columns * size.width + GAP
    head = HEAD + LINE_HEIGHT * (max(1, len(_words(found))) - 1)
    height = head + rows * (size.height + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        *_head(found),
    ]
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        parts.append(panel.svg(EDGE + column * (panel.width + GAP), head + row * (panel.height + GAP)))
    return "\n".join([*parts, "</svg>", ""])


def _words(found: Sweep) -> list[str]:
    """Returns the description of the prediction, in lines; no lines without a prediction."""
    return [] if found.prediction is None else wrap(found.prediction.words, WORDS_IN_A_LINE)


def _head(found: Sweep) -> list[str]:
    title = f"{found.model} under load" + (": interrupted, these points are whole" if found.interrupted else "")
    parts = [
        f'<text x="{EDGE}" y="26" font-size="16" font-weight="bold">{escape(title)}</text>',
        f'<line x1="{EDGE}" y1="46" x2="{EDGE + 30}" y2="46" stroke="{MEASURED}" stroke-width="2"/>',
        f'<circle cx="{EDGE + 15}" cy="46" r="4" fill="{MEASURED}"/>',
        f'<text x="{EDGE + 38}" y="50">measured</text>',
    ]
    if found.prediction is not None:
        at = EDGE + 130
        parts += [
            f'<line x1="{at}" y1="46" x2="{at + 30}" y2="46" stroke="{PREDICTED}" stroke-width="2" '
            'stroke-dasharray="6 4"/>',
            f'<circle cx="{at + 15}" cy="46" r="3" fill="white" stroke="{PREDICTED}"/>',
            f'<text x="{at + 38}" y="50">predicted by the cost model, at the same points</text>',
        ]
        for number, line in enumerate(_words(found)):
            at_y = 70 + LINE_HEIGHT * number
            parts.append(f'<text x="{EDGE}" y="{at_y}" fill="#555" font-size="11">{escape(line)}</text>')
    return parts


def _users_panels(found: Sweep) -> list[Panel]:
    if not found.users:
        return []
    prediction = found.prediction.users if found.prediction else ()
    latency, waiting = [], []
    for each in found.users:
        seen = each.figures
        latency.append((seen.output_tokens_per_s, 1e3 * seen.itl.mean if seen.itl else 0.0))
        waiting.append((float(each.users), 1e3 * seen.ttft.mean if seen.ttft else 0.0))
    guessed = tuple((each.output_tokens_per_s, 1e3 * each.itl_s) for each in prediction)
    guessed_waiting = tuple((float(each.users), 1e3 * each.ttft_s) for each in prediction)
    asked = f"prompts of {found.ask.prompt_tokens:,} tokens, {found.ask.output_tokens} out"
    labels = tuple(_named(each.users) for each in found.users)
    guessed_labels = tuple(_named(each.users) for each in prediction)
    return [
        Panel(
            f"ITL and throughput, {asked}",
            "output tokens a second, all users together",
            "ITL, mean, ms",
            _lines(tuple(latency), guessed, labels, guessed_labels),
        ),
        Panel(
            f"TTFT and users, {asked}",
            "users at a time",
            "TTFT, mean, ms",
            _lines(tuple(waiting), guessed_waiting),
            least_x_step=1,
        ),
    ]


def _named(users: int) -> str:
    return f"{users} user{'s' if users > 1 else ''}"


def _length_panels(found: Sweep) -> list[Panel]:
    if not found.lengths:
        return []
    ttft = tuple((float(each.prompt_tokens), 1e3 * each.ttft_s) for each in found.lengths)
    itl = tuple((each.context_tokens, 1e3 * each.itl_s) for each in found.lengths)
    prediction = found.prediction
    return [
        Panel(
            "TTFT and prompt length, one user",
            "prompt tokens",
            "TTFT, median, ms",
            _lines(ttft, _ms(prediction.ttft) if prediction else ()),
        ),
        Panel(
            "ITL and context length, one user",
            "tokens in the context",
            "ITL, mean of a request, median of requests, ms",
            _lines(itl, _ms(prediction.itl) if prediction else ()),
        ),
    ]


def _ms(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    return tuple((x, 1e3 * seconds) for x, seconds in points)


def _lines(
    measured: tuple[tuple[float, float], ...],
    guessed: tuple[tuple[float, float], ...],
    labels: tuple[str, ...] = (),
    guessed_labels: tuple[str, ...] = (),
) -> tuple[Line, ...]:
    found = [Line(guessed, PREDICTED, dashed=True, labels=guessed_labels)] if guessed else []
    return (*found, Line(measured, MEASURED, labels=labels))
