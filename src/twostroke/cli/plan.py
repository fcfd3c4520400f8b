"""`twostroke plan`: what a model will do and cost on a machine, from its config.json alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twostroke.assembly.settings.option_values import parse_bytes
from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.division_flags import DivisionFlags, divided_target, require_hardware
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.readings import (
    COUNT,
    DURATION,
    ENCODER_FORMAT,
    ENCODER_HELP,
    FORMAT,
    FORMAT_HELP,
    KV_FORMAT,
    reading,
)
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.lab.planner.divided_plan import DividedPlan
    from twostroke.lab.planner.expect import Expectation

DOES_NOT_FIT = 4
PICTURES = (".png", ".svg")


@dataclass(frozen=True)
class WorkFlags:
    """The flags of the machine, the formats and the work that are planned."""

    hardware: str | None = flag(
        "--hardware", metavar="NAME", default=None, help="A name of the catalogue, or 4xNAME [default: this machine]."
    )
    weights: str | None = flag(
        "--weights",
        metavar="FORMAT",
        callback=FORMAT,
        default=None,
        help=f"{FORMAT_HELP} [default: int8].",
    )
    kv_format: str | None = flag(
        "--kv-format",
        metavar="FORMAT",
        callback=KV_FORMAT,
        default=None,
        help="f32, bf16, int8 or int4 [default: as the engine takes them].",
    )
    context: int | None = flag(
        "--context", metavar="TOKENS", callback=COUNT, default=None, help="Prompt and answer together [default: 2048]."
    )
    output: int | None = flag(
        "--output",
        metavar="TOKENS",
        callback=COUNT,
        default=None,
        help="The answer's part of them [default: a quarter].",
    )
    concurrency: int = flag(
        "--concurrency", metavar="COUNT", callback=COUNT, default="1", help="Requests at a time [default: 1]."
    )
    ttft: float | None = flag(
        "--ttft", metavar="TIME", callback=DURATION, default=None, help="Objective: time to first token, such as 1s."
    )
    itl: float | None = flag(
        "--itl",
        metavar="TIME",
        callback=DURATION,
        default=None,
        help="Objective: 95% of a request's gaps, such as 50ms.",
    )
    memory: int | None = flag(
        "--memory",
        metavar="BYTES",
        callback=reading(parse_bytes),
        default=None,
        help="Memory of the machine, rank or stage [default: what the hardware has, or this machine has available].",
    )


@dataclass(frozen=True)
class OneProcessFlags:
    """The flags that add figures to a plan. Most of them are only for a plan of one process."""

    price_per_hour: float | None = flag(
        "--price-per-hour",
        type=click.FloatRange(0, min_open=True),
        default=None,
        help="Price of the whole machine.",
    )
    acceptance: float = flag(
        "--acceptance",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.0,
        help="Also decode with guesses (`serve --speculate`), this share of which is right.",
    )
    adapters: int = flag(
        "--adapters",
        type=click.IntRange(0, 1024),
        default=0,
        help="Places for LoRA adapters; every request uses one [default: 0].",
    )
    adapter_rank: int = flag(
        "--adapter-rank", type=click.IntRange(1, 512), default=16, help="Rank of each adapter [default: 16]."
    )
    images: tuple[str, ...] = flag(
        "--image",
        metavar="WIDTHxHEIGHT",
        multiple=True,
        help="An image of this size in each prompt, such as 1024x768; may be repeated.",
    )
    encoder_weights: str | None = flag(
        "--encoder-weights",
        metavar="FORMAT",
        callback=ENCODER_FORMAT,
        default=None,
        help=f"Format of the image encoder's matrices: {ENCODER_HELP}",
    )
    plot: Path | None = flag(
        "--plot",
        metavar="FILE",
        type=click.Path(path_type=Path),
        default=None,
        help="Draw the roofline: .png or .svg.",
    )

    def check_picture(self) -> None:
        """Raises ConfigError where the roofline cannot be drawn to this file."""
        from twostroke.cli.shared.output_file import check_place

        if self.plot is not None and self.plot.suffix.lower() not in PICTURES:
            raise ConfigError(
                f"--plot {self.plot}: the roofline is drawn as PNG or SVG.",
                fix="Name a file that ends in .png or .svg.",
            )
        if self.plot is not None:
            check_place(self.plot, "--plot")

    def refuse(self) -> None:
        """Raises ConfigError where one of these flags is given, because the plan is over several processes."""
        wrong = {
            "--plot": self.plot is not None,
            "--price-per-hour": self.price_per_hour is not None,
            "--acceptance": self.acceptance > 0,
            "--adapters": self.adapters > 0,
        }
        named = [name for name, asked in wrong.items() if asked]
        if named:
            raise ConfigError(
                f"{named[0]} is not possible with ranks or stages.",
                why="A divided model is planned without it.",
                fix="Leave it out.",
            )


@click.command(
    cls=ExampleCommand,
    example="twostroke plan meta-llama/Llama-3.1-70B --hardware h100-sxm --weights int4 --concurrency 16 --itl 50ms",
)
@click.argument("model", default="spark")
@taking(WorkFlags, "work")
@taking(DivisionFlags, "division")
@taking(OneProcessFlags, "alone")
@click.option("--revision", metavar="REV", default=None, help="Hub revision [default: main].")
@output_flags
def command(
    model: str,
    work: WorkFlags,
    division: DivisionFlags,
    alone: OneProcessFlags,
    revision: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print memory, TTFT, ITL, the limit (bandwidth or arithmetic), the cost of tokens, and which hardware is enough.

    MODEL is a folder, a GGUF file, a hub id or `spark`; only its config.json is read or downloaded (a GGUF file whole).
    Without --hardware the plan is for this machine, as `twostroke doctor` measured it. A machine without such a
    measurement is measured now, or guessed where it is too busy for that. With --tensor-parallel or
    --pipeline-parallel, the plan shows what each process needs, and what the processes exchange. The exit code is 4
    where not even one sequence fits.
    """
    with clear_errors(verbose):
        from twostroke.assembly.images.encoder_format import AS_THE_MODEL, EncoderFormat
        from twostroke.lab.planner.adapted import with_places
        from twostroke.lab.planner.ask import make_ask
        from twostroke.lab.planner.divided_plan import make_divided_plan
        from twostroke.lab.planner.images import find_sight, with_images
        from twostroke.lab.planner.memory_nodes import node_words
        from twostroke.lab.planner.model_config import read_model
        from twostroke.lab.planner.plan import make_plan, plan_json
        from twostroke.lab.planner.plan_text import plan_text

        alone.check_picture()
        require_hardware(work.hardware)
        found = read_model(model, revision)
        target, divided = divided_target(division, work.hardware, found.spec)
        if work.memory is not None:
            target = replace(target, memory_bytes=work.memory)
        ask = make_ask(found.spec, work.weights, work.kv_format, work.context, work.output, work.concurrency)
        ask = replace(ask, ttft_s=work.ttft, itl_s=work.itl, price_per_hour=alone.price_per_hour)
        keys = "" if found.keys is None else found.keys.digest(ask.kv_kind)
        adapters, rank = alone.adapters, alone.adapter_rank
        ask = replace(ask, acceptance=alone.acceptance, adapters=adapters, adapter_rank=rank, key_factors=keys)
        if divided is not None:
            alone.refuse()
        wanted = "--image" if alone.images else "--encoder-weights" if alone.encoder_weights else ""
        form = EncoderFormat.next_to(ask.weights, alone.encoder_weights or AS_THE_MODEL)
        sight = find_sight(found.source, found.spec, found.folder or Path(), form, wanted)
        ask = ask if sight is None else sight.asked(ask)
        shown = with_images(sight, alone.images, ask, target.machine)
        if divided is not None:
            made = make_divided_plan(found.source, found.spec, ask, target, divided)
            return _print_divided(replace(made, images=shown), as_json)
        plan = make_plan(found.source, with_places(found.spec, adapters, rank), ask, target)
        said = ("encodes of images are in the TTFT of one request alone, not in figures of several at a time",)
        plan = replace(plan, images=shown, assumptions=(*plan.assumptions, *(said if shown else ())))
        nodes = node_words(found.spec, ask, target)
        plan = replace(plan, assumptions=(*plan.assumptions, nodes)) if nodes else plan
        if alone.plot is not None:
            _draw(alone.plot, plan.source, plan.expectation)
        if as_json:
            print_json(plan_json(plan))
        else:
            click.echo(plan_text(plan))
            if found.quantized:
                click.echo(found.quantized)
        if not plan.expectation.room.sequences:
            raise SystemExit(DOES_NOT_FIT)


def _print_divided(plan: DividedPlan, as_json: bool) -> None:
    from twostroke.lab.planner.divided_text import divided_json, divided_text

    if as_json:
        print_json(divided_json(plan))
    else:
        click.echo(divided_text(plan))


def _draw(path: Path, source: str, expectation: Expectation) -> None:
    from twostroke.cli.shared.output_file import write_bytes
    from twostroke.lab.planner.pictures.drawing_png import as_png
    from twostroke.lab.planner.pictures.drawing_svg import as_svg
    from twostroke.lab.planner.pictures.roofline_plot import roofline

    drawing = roofline(f"{source} on {expectation.target.title}", expectation)
    picture = as_png(drawing) if path.suffix.lower() == ".png" else as_svg(drawing)
    write_bytes(path, picture, "--plot")
