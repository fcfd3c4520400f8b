"""Reads the texts of flags as values: times, rates, formats."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from twostroke.assembly.settings.option_values import ENCODER_WEIGHTS, KEPT, WEIGHTS, one_of, parse_count
from twostroke.ops.quant.formats import WEIGHT_NAMES

UNITS = {"bit/s": 0.125, "B/s": 1.0}
SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def duration_s(text: str) -> float:
    """ "1s", "50ms", "0.5" -> seconds. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s)?\s*", text)
    value = float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, None: 1.0}[match[2]] if match else 0.0
    if value <= 0:
        raise ValueError("write a time such as 50ms or 1s")
    return value


def bytes_per_s(text: str) -> float:
    """ "400Gbit/s", "50GB/s" -> bytes a second. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)(bit/s|B/s)\s*", text)
    value = float(match[1]) * SCALES[match[2]] * UNITS[match[3]] if match else 0.0
    if value <= 0:
        raise ValueError("write a rate such as 400Gbit/s or 50GB/s")
    return value


def reading(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Returns a click callback from a function that raises ValueError."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}.", ctx, param) from None

    return callback


COUNT, DURATION = reading(parse_count), reading(duration_s)
FORMAT, KV_FORMAT, ENCODER_FORMAT = (reading(one_of(*names)) for names in (WEIGHTS, KEPT, ENCODER_WEIGHTS))
FORMAT_HELP = " or".join(", ".join(WEIGHT_NAMES).rsplit(",", 1))
ENCODER_HELP = "usual, int8, int16, bf16 or f32 [default: usual, which follows from --weights]."
