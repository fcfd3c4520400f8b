"""`twostroke doctor`: measures this machine once, keeps the figures, and prints what they mean."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.talk_lines import print_talk

if TYPE_CHECKING:
    from twostroke.cost.calibration import Calibration
    from twostroke.lab.planner.doctor.machine import ThisMachine


LINE_EVERY_S = 5.0


@click.command(cls=ExampleCommand, example="twostroke doctor --fresh")
@click.argument("model", required=False)
@click.option(
    "--threads", type=click.IntRange(1, 256), default=None, help="CPU threads [default: cores of this process]."
)
@click.option("--fresh", is_flag=True, help="Measure again, even where figures of this machine are kept.")
@output_flags
def command(model: str | None, threads: int | None, fresh: bool, as_json: bool, verbose: bool) -> None:
    """Measure what this machine can do (about ten seconds; a minute at most where it is busy):
    read bandwidth, products in int8, bfloat16 and float32, attention, Python's share.

    The figures are kept in the cache folder and predict step times; `twostroke plan` uses them. Where other programs
    use the processors meanwhile, the figures are shown but not kept, and the exit code is 1.

    With MODEL nothing is measured: the command prints how this model converses, as `config MODEL --talk` does.
    """
    with clear_errors(verbose):
        if model is not None:
            print_talk(model, as_json, {})
            return
        from twostroke.lab.planner.doctor.examine import machine_busy
        from twostroke.lab.planner.doctor.machine import ThisMachine
        from twostroke.lab.planner.doctor.meaning import MEANT, meaning

        here = ThisMachine.read(threads)
        calibration = None if fresh else here.kept()
        kept = calibration is not None
        busy = None
        if calibration is None:
            calibration = _measured(here, as_json)
            busy = machine_busy(calibration.others_share) if calibration.disturbed else None
        meant = [meaning(calibration, name) for name in MEANT]
        if as_json:
            said = {} if busy is None else {"verdict": busy.what}
            levels = {"level": here.level, "better_level": here.better_level, "cores_reason": here.placing}
            print_json({"cores": here.cores, **levels, **said, **_as_json(calibration, meant, kept)})
            if busy is not None:
                raise busy
            return
        click.echo(f"{calibration.title}; {here.cores} cores, {calibration.threads} threads, {here.level} kernels")
        click.echo(f"threads by default: {here.cores} ({here.placing})")
        for words in _of_nodes(here, calibration):
            click.echo(words)
        if here.better_level is not None:
            from twostroke.backends.cpu.library import BUILD

            click.echo(f"this CPU also runs the {here.better_level} kernels, which are not built: {BUILD}")
        click.echo(f"{calibration.memory_bytes / 1e9:.1f} GB of memory were available when it was measured")
        click.echo(f"reads memory at   {calibration.read_bytes_per_s / 1e9:>9,.1f} GB/s")
        click.echo(f"float32 products  {calibration.f32_flops_per_s / 1e9:>9,.0f} GFLOP/s")
        click.echo(f"bfloat16 products {calibration.bf16_flops_per_s / 1e9:>9,.0f} GFLOP/s, as the kernels reach them")
        click.echo(f"int8 products     {calibration.int8_ops_per_s / 1e9:>9,.0f} GOP/s")
        click.echo(f"Python's share    {1e3 * calibration.host.step_s:>9.2f} ms a step")
        if calibration.exchange is not None:
            exchange, rate = calibration.exchange, calibration.exchange.bytes_per_s / 1e9
            click.echo(f"two ranks meet in {1e6 * exchange.meeting_s:>9.1f} us, and exchange {rate:,.1f} GB/s")
        for each in meant:
            click.echo("\n" + each.words())
        if busy is not None:
            raise busy
        if calibration.disturbed:
            taken = f"{calibration.others_share:.0%} of the cores"
            click.echo(f"\nother programs took {taken} meanwhile: the figures are too low; --fresh measures again")
        click.echo("\nkept from before; --fresh measures again" if kept else "\nkept for `twostroke plan`")


def _of_nodes(here: ThisMachine, calibration: Calibration) -> Iterator[str]:
    """Yields lines that tell how `serve` would divide a model of a billion parameters among this machine's memory nodes
    (NUMA). Yields none on a machine with one node."""
    from twostroke.assembly.settings.config import USUAL_SEQUENCES
    from twostroke.assembly.settings.env import read_machine
    from twostroke.lab.planner.ask import make_ask
    from twostroke.lab.planner.doctor.meaning import MEANT, ONE_BILLION
    from twostroke.lab.planner.memory_nodes import node_words, nodes_of
    from twostroke.lab.planner.target import here_target
    from twostroke.models.common.registry import read_model

    machine = read_machine()
    nodes = nodes_of(machine, here.level)
    if nodes is None:
        return
    spec, target = read_model(ONE_BILLION), replace(here_target(calibration, machine.available_bytes), nodes=nodes)
    for streams in (1, USUAL_SEQUENCES):
        ask = make_ask(spec, MEANT[0], concurrency=streams)
        yield f"1 B {MEANT[0]}, {streams} at a time, {node_words(spec, ask, target)}"


def _measured(here: ThisMachine, as_json: bool) -> Calibration:
    """Measures this machine now. With --json, a machine that is too busy is reported in JSON too."""
    from twostroke.lab.planner.doctor.examine import MachineBusy

    try:
        with step_notes() as note:
            return here.measure(note)[0]
    except MachineBusy as busy:
        if as_json:
            print_json({"kept": False, "verdict": busy.what, "calibration": None})
        raise


def _as_json(calibration: Any, meant: list[Any], kept: bool) -> dict[str, Any]:
    from dataclasses import asdict

    figures = {"bf16_flops_per_s": calibration.bf16_flops_per_s, **calibration.as_json()}
    return {"kept": kept, "calibration": figures, "one_billion": [asdict(each) for each in meant]}


@contextlib.contextmanager
def step_notes() -> Iterator[Callable[[int, int, str], None]]:
    """Yields a function that shows progress by steps on standard error: a bar with the time in a terminal, occasional
    lines elsewhere."""
    if not sys.stderr.isatty():
        said_s: list[float] = []

        def line(done: int, total: int, what: str) -> None:
            if not said_s:
                click.echo("measuring this machine, about ten seconds", err=True)
                said_s.append(time.monotonic())
            elif time.monotonic() - said_s[-1] >= LINE_EVERY_S and done < total:
                said_s.append(time.monotonic())
                click.echo(f"part {done} of {total}: {what}", err=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring this machine", total=None)

        def update(done: int, total: int, what: str) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield update
