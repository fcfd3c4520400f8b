"""`twostroke bench ranks`: a divided model compared with one process of as many threads."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import CacheSettings, DiskSettings, ModelSettings, StepSettings
from twostroke.assembly.settings.option import Option
from twostroke.cli.bench.load_flags import flags
from twostroke.cli.bench.phase_flags import phase_flags, shaped, take_asked
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, output_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.progress import progress_bar
from twostroke.cli.shared.readings import COUNT
from twostroke.types.errors import ConfigError

OPTIONS: tuple[Option[Any], ...] = (
    *(ModelSettings.weights, CacheSettings.kv_format, CacheSettings.kv_memory),
    *(StepSettings.max_step_tokens, DiskSettings.cache),
)


@dataclass(frozen=True)
class RankFlags:
    """The flags of the processes among which the model is divided: their number, and the threads of each."""

    tensor_parallel: int = flag(
        "--tensor-parallel", metavar="COUNT", callback=COUNT, default="1", help="Ranks that share each layer."
    )
    pipeline_parallel: int = flag(
        "--pipeline-parallel", metavar="COUNT", callback=COUNT, default="1", help="Stages, instead of ranks."
    )
    threads: int = flag(
        "--threads", type=click.IntRange(1), default=1, help="Threads of each rank or stage [default: 1]."
    )


@click.command(cls=ExampleCommand, example="twostroke bench ranks --shape llama-3.2-1b --tensor-parallel 2 --json")
@click.argument("model", default="spark")
@flags(*phase_flags("128,512", "1,4", 128, 5))
@taking(RankFlags, "processes")
@option_flags(OPTIONS)
@output_flags
def ranks(
    model: str, shape: str | None, processes: RankFlags, as_json: bool, verbose: bool, **options: Any
) -> None:
    """Measure a model over two or more processes (two ranks by default), and in one process with as many threads.

    Both take turns in every round. The result is the median of the rounds' ratios.
    """
    with clear_errors(verbose):
        from twostroke.assembly.settings.env import read_machine
        from twostroke.lab.bench.divided import GOAL, DividedBench, table
        from twostroke.llm import LLM
        from twostroke.ops.passes.division import TENSOR, Division

        threads, division = processes.threads, Division.asked(processes.tensor_parallel, processes.pipeline_parallel)
        division = division or Division(TENSOR, 2)
        cores, wanted = read_machine().cores, threads * division.count
        if wanted > cores:
            raise ConfigError(
                f"{division.count} {division.noun}s of --threads {threads} need {wanted} cores, of {cores} here.",
                why="Figures of processes that share a core do not hold for processes that do not.",
                fix="Ask for fewer.",
            )
        asked = take_asked(options)
        room = {"context": asked.longest, "max_sequences": max(asked.batches)}
        divided_by = {f"{division.way}_parallel": division.count}
        with progress_bar("prepare") as progress:
            model = shaped(model, shape, None, progress)
            whole = LLM(model, progress=progress, threads=wanted, **room, **options)
        note = (lambda text: click.echo(text, err=True)) if not as_json else (lambda text: None)
        with whole, progress_bar("prepare") as progress:
            divided = LLM(model, progress=progress, threads=threads, **divided_by, **room, **options)
            with divided:
                bench = DividedBench(whole, divided, time.perf_counter)
                found = bench.run(asked, note)
                weights = whole.resolved.model.weights
        if as_json:
            said = {"model": model, "weights": weights, "way": division.way, "processes": division.count}
            print_json({**said, "threads": threads, "goal": GOAL, "cases": [each.as_json() for each in found]})
            return
        click.echo(
            f"{model}, {weights}: {division.count} {division.noun}s of {threads} next to one process of {wanted} "
            "threads; tokens a second"
        )
        for line in table(found):
            click.echo(line)
