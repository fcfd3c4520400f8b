"""`twostroke plan`: what a model will do and cost on a machine, from its config.json alone.

Knows: the planner, printing, writing a picture.
Must not know: how figures come about.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.command import ExampleCommand, clear_errors, print_json
from twostroke.cli.doctor import step_notes
from twostroke.options import one_of, parse_count
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.planner.expect import Expectation
    from twostroke.planner.target import Target

DOES_NOT_FIT = 4
FORMATS = ("f32", "bf16", "int8", "int4", "stored")
PICTURES = (".png", ".svg")


def duration_s(text: str) -> float:
    """ "1s", "50ms", "0.5" -> seconds. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s)?\s*", text)
    value = float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, None: 1.0}[match[2]] if match else 0.0
    if value <= 0:
        raise ValueError("write a time such as 50ms or 1s")
    return value


def reading(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A click callback from a function that raises ValueError."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}.", ctx, param) from None

    return callback


COUNT, DURATION, FORMAT = reading(parse_count), reading(duration_s), reading(one_of(*FORMATS))


@click.command(
    cls=ExampleCommand,
    example="twostroke plan meta-llama/Llama-3.1-70B --hardware h100-sxm --weights int4 --concurrency 16 --itl 50ms",
)
@click.argument("model", default="spark")
@click.option("--hardware", metavar="NAME", default=None, help="Of the catalogue, or 4xNAME [default: this machine].")
@click.option(
    "--weights", metavar="FORMAT", callback=FORMAT, default=None, help="f32, bf16, int8 or int4 [default: int8]."
)
@click.option(
    "--kv-format", metavar="FORMAT", callback=FORMAT, default=None, help="f32, bf16, int8 or int4 [default: bf16]."
)
@click.option(
    "--context", metavar="TOKENS", callback=COUNT, default=None, help="Prompt and answer together [default: 2048]."
)
@click.option(
    "--output", metavar="TOKENS", callback=COUNT, default=None, help="Of these, the answer [default: a quarter]."
)
@click.option("--concurrency", metavar="COUNT", callback=COUNT, default="1", help="Requests at a time [default: 1].")
@click.option(
    "--ttft", metavar="TIME", callback=DURATION, default=None, help="Objective: time to first token, such as 1s."
)
@click.option(
    "--itl", metavar="TIME", callback=DURATION, default=None, help="Objective: 95% of a request's gaps, such as 50ms."
)
@click.option("--price-per-hour", type=click.FloatRange(0, min_open=True), default=None, help="Of the whole machine.")
@click.option(
    "--acceptance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    help="Also decode with guesses (`serve --speculate`), this share of which is right.",
)
@click.option(
    "--plot", metavar="FILE", type=click.Path(path_type=Path), default=None, help="Draw the roofline: .png or .svg."
)
@click.option("--revision", metavar="REV", default=None, help="Hub revision [default: main].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def command(
    model: str,
    hardware: str | None,
    weights: str | None,
    kv_format: str | None,
    context: int | None,
    output: int | None,
    concurrency: int,
    ttft: float | None,
    itl: float | None,
    price_per_hour: float | None,
    acceptance: float,
    plot: Path | None,
    revision: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Memory, TTFT, ITL, the side of the ridge and the cost of tokens, and which hardware would do.

    MODEL is a folder, a GGUF file, a hub id or `spark`; only its config.json is read or downloaded (a GGUF file whole).
    Without --hardware the plan is for this machine, as `twostroke doctor` measured it (it is measured now where it
    never was). The exit code is 4 where not even one sequence fits.
    """
    with clear_errors(verbose):
        from twostroke.cli.output_file import check_place
        from twostroke.planner.ask import make_ask
        from twostroke.planner.model_config import read_model
        from twostroke.planner.plan import make_plan, plan_json
        from twostroke.planner.plan_text import plan_text
        from twostroke.planner.target import named_target

        if plot is not None and plot.suffix.lower() not in PICTURES:
            raise ConfigError(
                f"--plot {plot}: the roofline is drawn as PNG or SVG.", fix="Name a file that ends in .png or .svg."
            )
        if plot is not None:
            check_place(plot, "--plot")
        target = named_target(hardware) if hardware is not None else None
        found = read_model(model, revision)
        ask = make_ask(found.spec, weights, kv_format, context, output, concurrency, ttft, itl, price_per_hour)
        ask = replace(ask, acceptance=acceptance)
        plan = make_plan(found.source, found.spec, ask, target or _here())
        if plot is not None:
            _draw(plot, plan.source, plan.expectation)
        if as_json:
            print_json(plan_json(plan))
        else:
            click.echo(plan_text(plan))
            if found.quantized:
                click.echo(found.quantized)
        if not plan.expectation.room.sequences:
            raise SystemExit(DOES_NOT_FIT)


def _here() -> Target:
    from twostroke.env import read_machine
    from twostroke.planner.doctor.machine import ThisMachine
    from twostroke.planner.target import here_target

    with step_notes() as note:
        calibration = ThisMachine.read().kept_or_measured(note)
    return here_target(calibration, read_machine().available_bytes)


def _draw(path: Path, source: str, expectation: Expectation) -> None:
    from twostroke.cli.output_file import write_bytes
    from twostroke.planner.drawing_png import as_png
    from twostroke.planner.drawing_svg import as_svg
    from twostroke.planner.roofline_plot import roofline

    drawing = roofline(f"{source} on {expectation.target.title}", expectation)
    picture = as_png(drawing) if path.suffix.lower() == ".png" else as_svg(drawing)
    write_bytes(path, picture, "--plot")
