"""`twostroke bench predict` checks the cost model: predicted times next to measured ones, phase by phase."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import CacheSettings, CpuSettings, DiskSettings, StepSettings
from twostroke.assembly.settings.option import Option
from twostroke.assembly.settings.option_values import one_of
from twostroke.cli.bench.load_flags import flags
from twostroke.cli.bench.phase_flags import phase_flags, shaped, take_asked
from twostroke.cli.doctor import step_notes
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, output_flags, print_json
from twostroke.cli.shared.progress import progress_bar
from twostroke.ops.quant.formats import WEIGHT_NAMES
from twostroke.types.errors import ConfigError

THREADS = CpuSettings.threads
OPTIONS: tuple[Option[Any], ...] = (
    *(CacheSettings.kv_format, THREADS, StepSettings.max_step_tokens),
    DiskSettings.cache,
)


def formats(text: str) -> tuple[str, ...]:
    """ "int8,int4" -> ("int8", "int4"); raises BadParameter."""
    try:
        return tuple(one_of(*WEIGHT_NAMES)(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}.") from None


@click.command(cls=ExampleCommand, example="twostroke bench predict --shape llama-3.2-1b --weights int8,int4 --json")
@click.argument("model", default="spark")
@flags(*phase_flags("128,512,2048", "1,4,8,16", 512, 3))
@click.option("--weights", default="int8,int4", callback=lambda c, p, v: formats(v), help="Formats, one after another.")
@click.option("--fresh", is_flag=True, help="Measure the machine again first.")
@option_flags(OPTIONS)
@output_flags
def predict(
    model: str,
    shape: str | None,
    weights: tuple[str, ...],
    fresh: bool,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Show the prefill and decode times that `twostroke plan` predicts, next to times that are measured now.

    Prompts longer than the model's context are cut to it.
    """
    with clear_errors(verbose):
        from twostroke.lab.bench.predict import GOAL, compare, table
        from twostroke.lab.planner.doctor.machine import ThisMachine
        from twostroke.lab.planner.model_config import read_model
        from twostroke.llm import LLM

        threads = None if options[THREADS.name] is None else THREADS.read(options[THREADS.name], THREADS.flag)
        with progress_bar("checkpoint") as progress:
            model = shaped(model, shape, None, progress)
        asked = take_asked(options)
        longest = read_model(model).spec.max_positions - asked.new_tokens
        if asked.context > longest:
            raise ConfigError(
                f"--at {asked.context} with --new {asked.new_tokens} is more than the model's context.",
                fix=f"Ask for at most {longest}.",
            )
        lengths = tuple(dict.fromkeys(min(length, longest) for length in asked.prompt_lengths))
        asked = replace(asked, prompt_lengths=lengths)
        here = ThisMachine.read(threads)
        with step_notes() as note:
            calibration = here.measure(note)[0] if fresh else here.kept_or_measured(note)
        found = []
        room = {"context": asked.longest, "max_sequences": max(asked.batches)}
        for name in weights:
            with progress_bar("prepare") as progress:
                llm = LLM(model, progress=progress, weights=name, **room, **options)
            with llm:
                found += compare(llm, calibration, asked, time.perf_counter, lambda text: click.echo(text, err=True))
        if as_json:
            print_json(
                {
                    "model": model,
                    "machine": calibration.title,
                    "threads": calibration.threads,
                    "read_bytes_per_s": calibration.read_bytes_per_s,
                    "goal": GOAL,
                    "cases": [each.as_json() for each in found],
                }
            )
            return
        click.echo(f"{model} on {calibration.title}, {calibration.threads} threads; tokens a second")
        for line in table(found):
            click.echo(line)
