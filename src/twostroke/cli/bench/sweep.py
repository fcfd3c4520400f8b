"""`twostroke bench sweep`: measures a server at several numbers of concurrent users and several prompt lengths, and
draws the results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.bench.load_flags import DEFAULT_URL, NUMBERS, TARGET_FLAGS, count_flag, flags, read_target
from twostroke.cli.bench.load_progress import load_progress
from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json
from twostroke.cli.shared.readings import FORMAT, KV_FORMAT
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.lab.bench.load.session import Target
    from twostroke.lab.bench.load.sweep import Sweep, SweepAsk

SWEEP_FLAGS = (
    click.option(
        "--users", metavar="LIST", callback=NUMBERS, default="1,2,4,8,16", help="Users at a time [default: 1,2,4,8,16]."
    ),
    click.option(
        "--prompts",
        metavar="LIST",
        callback=NUMBERS,
        default="64,128,256,512,1024",
        help="Prompt lengths [default: 64 to 1024].",
    ),
    count_flag("--prompt", "Prompt tokens while users are walked [default: 256].", "256"),
    count_flag("--output", "Output tokens of every request [default: 64].", "64"),
    count_flag("--rounds", "Requests of each user and of each length [default: 4].", "4"),
    click.option(
        "--predict",
        metavar="MODEL",
        default=None,
        help="Predict for this folder or hub id [default: spark where it is served here]; none: do not.",
    ),
    click.option(
        "--weights",
        metavar="FORMAT",
        callback=FORMAT,
        default=None,
        help="Weights of the prediction [default: as the engine's].",
    ),
    click.option(
        "--kv-format",
        metavar="FORMAT",
        callback=KV_FORMAT,
        default=None,
        help="K and V of the prediction [default: as the engine's].",
    ),
    click.option(
        "--threads", type=click.IntRange(1, 256), default=None, help="The server's threads, for the prediction."
    ),
    click.option("--plot", metavar="FILE.svg", type=click.Path(path_type=Path), default=None, help="Draw it."),
    click.option("--save", metavar="FILE.json", type=click.Path(path_type=Path), default=None, help="Write a report."),
)


@click.command(cls=ExampleCommand, example="twostroke bench sweep http://127.0.0.1:8000 --users 1,2,4,8 --plot s.svg")
@click.argument("url", default=DEFAULT_URL)
@flags(*SWEEP_FLAGS, *TARGET_FLAGS)
def sweep(url: str, as_json: bool, verbose: bool, save: Path | None, plot: Path | None, **options: Any) -> None:
    """Measure the server at URL with several numbers of users and several prompt lengths; draw latency, throughput,
    TTFT and ITL.

    Where the server runs a known model on this machine and `twostroke doctor` has measured it, the cost model's
    prediction stands next to each point. Ctrl-C keeps the points that are complete.
    """
    with clear_errors(verbose):
        import asyncio

        from twostroke.cli.shared.output_file import check_place, place_for, write_json, write_whole
        from twostroke.lab.bench.load.picture import sweep_svg
        from twostroke.lab.bench.load.sweep import SweepAsk, sorted_unique, sweep_text

        for path, option in ((save, "--save"), (plot, "--plot")):
            if path is not None:
                check_place(path, option)
        if plot is not None and plot.suffix.lower() != ".svg":
            raise ConfigError(f"--plot {plot}: a sweep is drawn as SVG.", fix="Name a file that ends in .svg.")
        lengths = sorted_unique(options["prompts"])
        sizes = (options["prompt"], options["output"], options["rounds"], options["seed"])
        ask = SweepAsk(sorted_unique(options["users"]), lengths, *sizes)
        found = asyncio.run(_run(read_target(url, options), ask, options["warmup"]))
        _add_prediction(found, url, options)
        if save is not None:
            write_json(place_for(save, found.interrupted), found.as_json(), "--save")
        if plot is not None:
            write_whole(place_for(plot, found.interrupted), sweep_svg(found), "--plot")
        if as_json:
            print_json(found.as_json())
        else:
            click.echo(sweep_text(found))
        if found.interrupted:
            raise SystemExit(130)


async def _run(target: Target, ask: SweepAsk, warmup: int) -> Sweep:
    from twostroke.lab.bench.load.session import open_session
    from twostroke.lab.bench.load.sweep import walk
    from twostroke.lab.workload.lengths import Lengths
    from twostroke.lab.workload.synthetic import closed_loop

    async with open_session(target, time.perf_counter, count_words=True) as session:
        first = closed_loop(warmup, Lengths(ask.prompt_tokens), Lengths(ask.output_tokens))
        await session.warm_up(first, warmup, ask.seed)
        with load_progress() as watch:
            return await walk(session, ask, lambda line: click.echo(line, err=True), watch)


def _add_prediction(found: Sweep, url: str, options: dict[str, Any]) -> None:
    from twostroke.cli.bench.sweep_prediction import kept_measurement, predict, prediction_model, require_kept
    from twostroke.lab.bench.load.server import base_url

    model, why = prediction_model(options["predict"], found.model, base_url(url))
    if model is not None:
        calibration = kept_measurement(options["threads"])
        why = require_kept(calibration, options["predict"])
        if calibration is not None:
            found.prediction = predict(found, model, options["weights"], options["kv_format"], calibration)
    if why:
        click.echo(why, err=True)
