"""A plan over several processes, as text for people and as plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from twostroke.cost.memory import KEPT_FREE_SHARE
from twostroke.lab.planner.choose import seconds
from twostroke.lab.planner.divided_plan import DividedPlan, PartPlan
from twostroke.lab.planner.images import encoder_lines
from twostroke.lab.planner.plan_text import load_lines, size

SCHEMA, ENCODER = 1, "encoder of images"

LINES: tuple[tuple[str, Callable[[PartPlan], str]], ...] = (
    ("weights", lambda part: size(part.weight_bytes)),
    ("K and V a token", lambda part: size(part.kv_bytes_per_token)),
    ("K and V in windows", lambda part: size(part.window_bytes_per_sequence)),
    ("states a sequence", lambda part: size(part.state_bytes)),
    ("a sequence", lambda part: size(part.sequence_bytes)),
    ("activations", lambda part: size(part.activation_bytes)),
    ("tables", lambda part: size(part.table_bytes)),
    ("the process itself", lambda part: size(part.process_bytes)),
    (ENCODER, lambda part: size(part.encoder_bytes)),
    ("with one sequence", lambda part: size(part.needed_bytes)),
    ("meetings a step", lambda part: f"{part.meetings:,}"),
    ("sends a row", lambda part: size(part.row_bytes)),
    ("sends a row's logits", lambda part: size(part.logit_row_bytes)),
)
MOST_COLUMNS = 8


def divided_text(plan: DividedPlan) -> str:
    """Returns the plan as sections of a few lines each."""
    return "\n\n".join(
        "\n".join(lines)
        for lines in (
            _head(plan),
            list(_table(plan)),
            list(_images(plan)),
            list(_steps(plan)),
            load_lines(plan.ask, plan.load),
            _said(plan),
        )
        if lines
    )


def divided_json(plan: DividedPlan) -> dict[str, Any]:
    """Returns the plan as plain values in seconds and bytes. Where the meaning of a field changes, the number "schema"
    is raised."""
    division, link = plan.divided.division, plan.divided.link
    return {
        "schema": SCHEMA,
        "model": plan.source,
        "ask": asdict(plan.ask),
        "division": asdict(division),
        "link": asdict(link),
        "hardware": {"name": plan.target.name, "title": plan.target.title, "memory_bytes": plan.target.memory_bytes},
        "parts": [{**asdict(part), "needed_bytes": part.needed_bytes} for part in plan.parts],
        "sequences": plan.sequences,
        "whole_sequences": plan.whole_sequences,
        "predicted_steps": [asdict(step) for step in plan.steps],
        "predicted_load": asdict(plan.load),
        "images": [image.as_json() for image in plan.images],
        "assumptions": list(plan.assumptions),
    }


def _head(plan: DividedPlan) -> list[str]:
    division, ask = plan.divided.division, plan.ask
    return [
        f"{plan.source}: weights {ask.weights}, K and V {ask.kv_words}, over {division.count} {division.noun}s",
        f"each on {plan.target.title}, with {size(plan.target.memory_bytes)}",
    ]


def _table(plan: DividedPlan) -> Iterator[str]:
    """Yields the lines of a table of the memory of each rank or stage. Neighbouring ones with the same needs share a
    column."""
    grouped = [list(parts) for _, parts in groupby(plan.parts, lambda part: [of(part) for _, of in LINES])]
    for first in range(0, len(grouped), MOST_COLUMNS):
        columns = grouped[first : first + MOST_COLUMNS]
        yield " " * 20 + "".join(f"{_names(parts):>16}" for parts in columns)
        for name, of in LINES:
            if name != ENCODER or plan.ask.encoder_bytes:
                yield f"{name:<20}" + "".join(f"{of(parts[0]):>16}" for parts in columns)
    fits = plan.sequences
    yield (
        f"sequences of {plan.ask.context_tokens:,} tokens that fit: {fits:,} ({KEPT_FREE_SHARE:.0%} of the memory is "
        "left free)" + ("" if fits >= plan.ask.concurrency else f"; {plan.ask.concurrency - fits:,} wait")
    )
    if plan.whole_sequences:
        yield (
            f"one process with this memory holds the whole model and {plan.whole_sequences:,} sequences: several that "
            "each have all of it (`serve --replicas`) serve more users"
        )
    else:
        yield "one process with this memory does not hold the whole model"


def _images(plan: DividedPlan) -> Iterator[str]:
    """Yields the lines about images; none where each prompt is text."""
    if not plan.images:
        return
    yield from encoder_lines(plan.images, size(plan.ask.encoder_bytes), plan.ask.encoder_weights)
    sent, rate = plan.sent_copies * sum(image.sent_bytes for image in plan.images), plan.divided.link.bytes_per_s
    yield (
        f"image rows to other {plan.divided.division.noun}s: {sent / 1e6:,.1f} MB, {seconds(sent / rate)} at "
        f"{rate / 1e9:,.4g} GB/s; of images that were shown lately nothing is encoded, and their rows travel again"
    )


def _names(parts: list[PartPlan]) -> str:
    return parts[0].name if len(parts) == 1 else f"{parts[0].name}-{parts[-1].name.split()[-1]}"


def _steps(plan: DividedPlan) -> Iterator[str]:
    yield "predicted:"
    for step in plan.steps:
        yield (
            f"  {step.name}, {step.rows:,} row{'s' * (step.rows > 1)}: {seconds(step.seconds)}, of them "
            f"{seconds(step.exchange_s)} of exchange"
        )


def _said(plan: DividedPlan) -> list[str]:
    return ["Assumptions:", *(f"  - {assumption}" for assumption in plan.assumptions)]
