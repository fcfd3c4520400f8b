"""Flags of the benches that measure prefill and decode by cases: the cases and the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.shared.command import numbers

if TYPE_CHECKING:
    from twostroke.lab.bench.phases import PhasesAsked

SHAPE_HELP = "Random weights instead of MODEL: llama-3.2-1b, qwen2.5-0.5b, or the path of any config.json."


def phase_flags(prompts: str, batches: str, at: int, rounds: int) -> tuple[Callable[[Any], Any], ...]:
    """Returns the flags of the cases that are measured. prompts, batches, at, rounds: the defaults of these flags."""
    return (
        click.option("--shape", default=None, help=SHAPE_HELP),
        click.option("--prompts", default=prompts, callback=_numbers, help=f"Prompt lengths [default: {prompts}]."),
        click.option("--batches", default=batches, callback=_numbers, help=f"Streams to decode [default: {batches}]."),
        click.option("--at", type=click.IntRange(1), default=at, help=f"Context where decode starts [default: {at}]."),
        click.option("--new", type=click.IntRange(2), default=32, help="Tokens that each decodes [default: 32]."),
        click.option(
            "--rounds", type=click.IntRange(1), default=rounds, help=f"Rounds after one warm-up [default: {rounds}]."
        ),
    )


def _numbers(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    return numbers(value)


def take_asked(options: dict[str, Any]) -> PhasesAsked:
    """Removes the options of the measured cases from `options`, and returns the cases. Sets --speculate to off where it
    was not given: a model with random weights repeats itself, so guesses would show nothing about a real model."""
    from twostroke.assembly.settings.engine_settings import SpeculateSettings
    from twostroke.lab.bench.phases import PhasesAsked

    way = SpeculateSettings.speculate.name
    options[way] = options.get(way) or "off"
    return PhasesAsked(*(options.pop(name) for name in ("prompts", "batches", "at", "new", "rounds")))


def shaped(model: str, shape: str | None, folder: Path | None, progress: Callable[[int, int, str], None]) -> str:
    """Returns the model, or a checkpoint of the shape with random weights. folder: the folder of this checkpoint; None
    for one in the cache folder."""
    from twostroke.assembly.settings.env import read_machine
    from twostroke.lab.bench.checkpoints import shape_folder, write_checkpoint

    if shape is None:
        return model
    return str(write_checkpoint(shape, folder or shape_folder(shape, read_machine().cache_folder), progress))
