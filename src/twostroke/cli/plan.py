"""`twostroke plan`: what a model will do and cost on a machine, from its config.json alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.option_values import parse_bytes
from twostroke.cli.bench.load_flags import flags
from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json
from twostroke.cli.shared.division_flags import DIVISION_FLAGS, divided_target, require_hardware
from twostroke.cli.shared.readings import COUNT, DURATION, FORMAT, KV_FORMAT, reading
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.lab.planner.divided_plan import DividedPlan
    from twostroke.lab.planner.expect import Expectation

DOES_NOT_FIT = 4
PICTURES = (".png", ".svg")


@click.command(
    cls=ExampleCommand,
    example="twostroke plan meta-llama/Llama-3.1-70B --hardware h100-sxm --weights int4 --concurrency 16 --itl 50ms",
)
@click.argument("model", default="spark")
@click.option(
    "--hardware", metavar="NAME", default=None, help="A name of the catalogue, or 4xNAME [default: this machine]."
)
@click.option(
    "--weights",
    metavar="FORMAT",
    callback=FORMAT,
    default=None,
    help="f32, bf16, int8, int6, int5 or int4 [default: int8].",
)
@click.option(
    "--kv-format",
    metavar="FORMAT",
    callback=KV_FORMAT,
    default=None,
    help="f32, bf16, int8 or int4 [default: as the engine takes them].",
)
@click.option(
    "--context", metavar="TOKENS", callback=COUNT, default=None, help="Prompt and answer together [default: 2048]."
)
@click.option(
    "--output", metavar="TOKENS", callback=COUNT, default=None, help="The answer's part of them [default: a quarter]."
)
@click.option("--concurrency", metavar="COUNT", callback=COUNT, default="1", help="Requests at a time [default: 1].")
@click.option(
    "--ttft", metavar="TIME", callback=DURATION, default=None, help="Objective: time to first token, such as 1s."
)
@click.option(
    "--itl", metavar="TIME", callback=DURATION, default=None, help="Objective: 95% of a request's gaps, such as 50ms."
)
@click.option(
    "--memory",
    metavar="BYTES",
    callback=reading(parse_bytes),
    default=None,
    help="Memory of the machine, rank or stage [default: what the hardware has, or this machine has available].",
)
@flags(*DIVISION_FLAGS)
@click.option(
    "--price-per-hour", type=click.FloatRange(0, min_open=True), default=None, help="Price of the whole machine."
)
@click.option(
    "--acceptance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    help="Also decode with guesses (`serve --speculate`), this share of which is right.",
)
@click.option(
    "--adapters",
    type=click.IntRange(0, 1024),
    default=0,
    help="Places for LoRA adapters; every request uses one [default: 0].",
)
@click.option("--adapter-rank", type=click.IntRange(1, 512), default=16, help="Rank of each adapter [default: 16].")
@click.option(
    "--image",
    "images",
    metavar="WIDTHxHEIGHT",
    multiple=True,
    help="An image of this size in each prompt, such as 1024x768; may be repeated.",
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
    memory: int | None,
    price_per_hour: float | None,
    acceptance: float,
    adapters: int,
    adapter_rank: int,
    images: tuple[str, ...],
    plot: Path | None,
    revision: str | None,
    as_json: bool,
    verbose: bool,
    **division: Any,
) -> None:
    """Memory, TTFT, ITL, the side of the ridge and the cost of tokens, and which hardware would do.

    MODEL is a folder, a GGUF file, a hub id or `spark`; only its config.json is read or downloaded (a GGUF file whole).
    Without --hardware the plan is for this machine, as `twostroke doctor` measured it (it is measured now where it
    never was, and guessed where it is too busy for that). With --tensor-parallel or --pipeline-parallel: what each
    process needs, and what they exchange. The exit code is 4 where not even one sequence fits.
    """
    with clear_errors(verbose):
        from twostroke.cli.shared.output_file import check_place
        from twostroke.lab.planner.adapted import with_places
        from twostroke.lab.planner.ask import make_ask
        from twostroke.lab.planner.divided_plan import make_divided_plan
        from twostroke.lab.planner.images import find_sight, with_images
        from twostroke.lab.planner.memory_nodes import node_words
        from twostroke.lab.planner.model_config import read_model
        from twostroke.lab.planner.plan import make_plan, plan_json
        from twostroke.lab.planner.plan_text import plan_text

        if plot is not None and plot.suffix.lower() not in PICTURES:
            raise ConfigError(
                f"--plot {plot}: the roofline is drawn as PNG or SVG.", fix="Name a file that ends in .png or .svg."
            )
        if plot is not None:
            check_place(plot, "--plot")
        require_hardware(hardware)
        found = read_model(model, revision)
        target, divided = divided_target(division, hardware, found.spec)
        if memory is not None:
            target = replace(target, memory_bytes=memory)
        asked = (weights, kv_format, context, output, concurrency, ttft, itl, price_per_hour)
        ask = make_ask(found.spec, *asked)
        keys = "" if found.keys is None else found.keys.digest(ask.kv_kind)
        ask = replace(ask, acceptance=acceptance, adapters=adapters, adapter_rank=adapter_rank, key_factors=keys)
        if divided is not None:
            _refuse_beside(plot, price_per_hour, acceptance, adapters, images)
            return _print_divided(make_divided_plan(found.source, found.spec, ask, target, divided), as_json)
        sight = find_sight(found.source, found.spec, found.folder or Path(), wanted=bool(images))
        ask = ask if sight is None else replace(ask, encoder_bytes=sight.num_bytes(ask.weights))
        shown = with_images(sight, images, ask, target.machine)
        plan = make_plan(found.source, with_places(found.spec, adapters, adapter_rank), ask, target)
        said = ("encodes of images are in the TTFT of one request alone, not in figures of several at a time",)
        plan = replace(plan, images=shown, assumptions=(*plan.assumptions, *(said if shown else ())))
        nodes = node_words(found.spec, ask, target)
        plan = replace(plan, assumptions=(*plan.assumptions, nodes)) if nodes else plan
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


def _print_divided(plan: DividedPlan, as_json: bool) -> None:
    from twostroke.lab.planner.divided_text import divided_json, divided_text

    if as_json:
        print_json(divided_json(plan))
    else:
        click.echo(divided_text(plan))


def _refuse_beside(
    plot: Path | None, price_per_hour: float | None, acceptance: float, adapters: int, images: tuple[str, ...]
) -> None:
    """Refuse options that a plan over several processes has no answer for. Raises ConfigError."""
    wrong = {
        "--plot": plot is not None,
        "--price-per-hour": price_per_hour is not None,
        "--acceptance": acceptance > 0,
        "--adapters": adapters > 0,
        "--image": bool(images),
    }
    named = [name for name, asked in wrong.items() if asked]
    if named:
        raise ConfigError(
            f"{named[0]} is not possible beside ranks or stages.",
            why="A divided model is planned without it.",
            fix="Leave it out.",
        )


def _draw(path: Path, source: str, expectation: Expectation) -> None:
    from twostroke.cli.shared.output_file import write_bytes
    from twostroke.lab.planner.drawing_png import as_png
    from twostroke.lab.planner.drawing_svg import as_svg
    from twostroke.lab.planner.roofline_plot import roofline

    drawing = roofline(f"{source} on {expectation.target.title}", expectation)
    picture = as_png(drawing) if path.suffix.lower() == ".png" else as_svg(drawing)
    write_bytes(path, picture, "--plot")
