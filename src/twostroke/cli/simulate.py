"""`twostroke simulate`: the production scheduler and cache under a virtual clock, for any hardware and any number of
replicas."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.option_values import parse_bytes
from twostroke.cli.bench.load_flags import flags, read_file
from twostroke.cli.bench.serve import LOAD_FLAGS, load_ask, read_objectives
from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.machine_flags import FLEET_FLAGS, MACHINE_FLAGS, read_fleet, read_setup
from twostroke.cli.shared.readings import ENCODER_FORMAT, ENCODER_HELP, bytes_per_s, reading
from twostroke.types.errors import ConfigError
from twostroke.types.objectives import LatencyObjectives

if TYPE_CHECKING:
    from twostroke.lab.bench.load.choose import Workload
    from twostroke.lab.sim.fleet.fleet import FleetOutcome
    from twostroke.lab.sim.recorder import StepRecorder
    from twostroke.lab.sim.setup import ReplicaSetup

EXAMPLE = (
    "twostroke simulate --workload steady-chat --rate 2 --requests 500\n"
    "         twostroke simulate --trace conversation_trace.jsonl --model meta-llama/Llama-3.1-8B --hardware h100-sxm\n"
    "         twostroke simulate --rate 20 --prompt 2k --output 200 --hardware h100-sxm --replicas 4 --decoders 4"
)


@click.command(cls=ExampleCommand, example=EXAMPLE)
@flags(*MACHINE_FLAGS, *FLEET_FLAGS, *LOAD_FLAGS)
@click.option(
    "--policy",
    type=click.Choice(["arrival", "objectives"]),
    default="arrival",
    help="objectives: the engines keep --ttft and --itl, as `twostroke serve` does with them; in split pools those "
    "that read keep the first, those that decode the second [default: arrival].",
)
@click.option(
    "--acceptance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    help="Tokens are guessed (`serve --speculate`), and this share of them is right [default: 0, no guesses].",
)
@click.option(
    "--adapters",
    type=click.IntRange(0, 1024),
    default=0,
    help="Number of LoRA adapters. Each request uses one of them; all are equally likely [default: 0].",
)
@click.option("--adapter-rank", type=click.IntRange(1, 512), default=16, help="Rank of each adapter [default: 16].")
@click.option(
    "--image",
    "images",
    metavar="WIDTHxHEIGHT",
    multiple=True,
    help="Each prompt that is long enough begins with a new image of this size; may be repeated.",
)
@click.option(
    "--encoder-weights",
    metavar="FORMAT",
    callback=ENCODER_FORMAT,
    default=None,
    help=f"With --image, the format of the encoder's matrices: {ENCODER_HELP}",
)
@click.option(
    "--kv-disk",
    metavar="BYTES",
    callback=reading(parse_bytes),
    default=None,
    help="Each replica keeps pages of prompts on a disk, at most this many bytes (`serve --kv-disk`) [default: none].",
)
@click.option(
    "--disk-read",
    metavar="RATE",
    callback=reading(bytes_per_s),
    default="200MB/s",
    help="With --kv-disk: how fast pages are read [default: 200MB/s].",
)
@click.option(
    "--disk-write",
    metavar="RATE",
    callback=reading(bytes_per_s),
    default="200MB/s",
    help="With --kv-disk: how fast pages are written [default: 200MB/s].",
)
@click.option("--seed", default=0, help="Seed of arrivals and lengths [default: 0].")
@click.option(
    "--perfetto", metavar="FILE.json", type=click.Path(path_type=Path), default=None, help="Write a Chrome trace."
)
@click.option(
    "--records",
    metavar="FILE.jsonl",
    type=click.Path(path_type=Path),
    default=None,
    help="Write step records of one replica, as `twostroke serve --trace` does.",
)
@output_flags
def command(
    perfetto: Path | None, records: Path | None, save: Path | None, as_json: bool, verbose: bool, **options: Any
) -> None:
    """Run a workload through the engine's own scheduler and cache, with predicted steps instead of a model.

    Steps are predicted from what `twostroke doctor` measured of this machine, or from the catalogue of hardware. A
    machine without such a measurement is measured now. A --trace may also be step records of a real server (`twostroke
    serve --trace FILE`). The report has the figures of `twostroke bench serve`.
    """
    with clear_errors(verbose):
        from twostroke.cli.shared.output_file import check_place, write_json
        from twostroke.lab.sim.fleet.routers import named_router
        from twostroke.lab.sim.recorder import StepRecorder
        from twostroke.lab.sim.report import make_report

        for place, option in ((perfetto, "--perfetto"), (records, "--records"), (save, "--save")):
            if place is not None:
                check_place(place, option)
        if records is not None and options["replicas"] + options["decoders"] + options["encoders"] > 1:
            raise _several_run()
        named_router(options["router"])
        workload = _workload(options)
        title, settings, setup = read_setup(options)
        setup = replace(setup, acceptance=options["acceptance"])
        plan = read_fleet(options, _promised(options, setup))
        recorder = StepRecorder() if perfetto is not None or records is not None else None
        began_s = time.perf_counter()
        outcome = _run(plan, options, workload, recorder)
        computed_s = time.perf_counter() - began_s
        names = ("replicas", "decoders", "encoders", "router", "policy", "seed", "acceptance")
        settings |= {name: options[name] for name in names}
        report = make_report(title, workload.words, settings, outcome, read_objectives(options), computed_s)
        if recorder is not None:
            _write_records(recorder, perfetto, records)
        if save is not None:
            write_json(save, report.as_json(), "--save")
        if as_json:
            print_json(report.as_json())
        else:
            click.echo(report.text())


def _run(plan: Any, options: dict[str, Any], workload: Workload, recorder: StepRecorder | None) -> FleetOutcome:
    from twostroke.lab.sim.fleet.fleet import Fleet
    from twostroke.lab.sim.fleet.routers import named_router
    from twostroke.lab.sim.garbage import seldom_collected

    fleet = Fleet(plan, named_router(options["router"]), recorder)
    with seldom_collected():
        return fleet.run(workload.requests, workload.users, options["duration"])


def _promised(options: dict[str, Any], setup: ReplicaSetup) -> ReplicaSetup:
    """Returns `setup`, with the objectives --ttft and --itl where --policy objectives is given. Raises ConfigError
    where it is given without an objective."""
    if options["policy"] == "arrival":
        return setup
    promised = LatencyObjectives(options["ttft"], options["itl"])
    if not promised.any:
        raise ConfigError(
            "--policy objectives needs --ttft or --itl.",
            why="This policy keeps the times that are promised.",
            fix="Give an objective.",
        )
    return replace(setup, promised=promised)


def _workload(options: dict[str, Any]) -> Workload:
    """Returns the workload that the load flags name; a trace may be step records. Raises ConfigError that names the
    line."""
    from twostroke.cost.history.record_json import HEADER_KEY, read_lines
    from twostroke.lab.bench.load.choose import Workload, make_workload
    from twostroke.lab.sim.replay import workload_of
    from twostroke.lab.workload.arrange import Arrangement, arranged

    path = options["trace"]
    text = read_file(path) if path is not None else ""
    if HEADER_KEY not in text[:200]:
        return make_workload(load_ask(options, None))
    found = workload_of(read_lines(text.splitlines(), path.name), path.name)
    how = Arrangement(options["rate_scale"], options["requests"], options["tokens_scale"])
    words = f"{path.name} (step records, {len(found):,} requests) at its own times"
    return Workload(arranged(found, how), options["concurrency"], words)


def _several_run() -> ConfigError:
    """Returns the error for --records with several engines, because the lines of a record file are the steps of one
    engine."""
    return ConfigError("--records holds the steps of one engine, and several run.", fix="Use --perfetto.")


def _write_records(recorder: StepRecorder, perfetto: Path | None, records: Path | None) -> None:
    import json

    from twostroke.cli.shared.output_file import write_whole
    from twostroke.cost.history.perfetto import trace
    from twostroke.cost.history.record_json import header_line, record_line

    if perfetto is not None:
        write_whole(perfetto, json.dumps(trace(recorder.records)), "--perfetto")
    if records is not None:
        if len(recorder.records) > 1:
            raise _several_run()
        lines = [record_line(each) for each in next(iter(recorder.records.values()), [])]
        write_whole(records, header_line() + "".join(lines), "--records")
