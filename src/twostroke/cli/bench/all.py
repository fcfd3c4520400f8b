"""`twostroke bench`: measurements on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from twostroke.assembly.settings.options import ENGINE_OPTIONS
from twostroke.cli.bench.compare import compare, peers
from twostroke.cli.bench.load_flags import flags
from twostroke.cli.bench.phase_flags import phase_flags, shaped, take_asked
from twostroke.cli.bench.predict import predict
from twostroke.cli.bench.ranks import ranks
from twostroke.cli.bench.serve import serve
from twostroke.cli.bench.speculate import speculate
from twostroke.cli.bench.sweep import sweep
from twostroke.cli.shared.command import (
    ExampleCommand,
    SuggestingGroup,
    clear_errors,
    option_flags,
    output_flags,
    print_json,
)
from twostroke.cli.shared.progress import progress_bar


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Measure this machine with this engine, and any server under load."""


command.add_command(compare)
command.add_command(peers)
command.add_command(serve)
command.add_command(sweep)
command.add_command(predict)
command.add_command(speculate)
command.add_command(ranks)


@command.command(cls=ExampleCommand, example="twostroke bench phases --shape llama-3.2-1b --weights int4 --json")
@click.argument("model", default="spark")
@flags(*phase_flags("128,512", "1,4,8,16", 128, 3))
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=None,
    help="Where the random checkpoint is written [default: the cache folder].",
)
@option_flags(ENGINE_OPTIONS)
@output_flags
def phases(
    model: str,
    shape: str | None,
    folder: Path | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Measure prefill tok/s by prompt length, decode tok/s by batch size, and peak memory."""
    with clear_errors(verbose):
        from twostroke.lab.bench.phases import PhaseBench
        from twostroke.llm import LLM

        asked = take_asked(options)
        with progress_bar("prepare") as progress:
            llm = LLM(shaped(model, shape, folder, progress), progress=progress, **options)
        with llm:
            note = (lambda text: click.echo(text, err=True)) if not as_json else (lambda text: None)
            report = PhaseBench(llm, time.perf_counter).run(asked, note)
        if as_json:
            print_json(report.as_json())
            return
        click.echo(
            "{model}: {weights} weights, {threads} threads, {cpu_level}".format(
                **{**report.settings, "model": report.model}
            )
        )
        click.echo(report.limits.words())
        click.echo(
            f"{'phase':<8} {'batch':>5} {'tokens':>6} {'tok/s':>9} {'of limit':>9}   "
            f"slowest .. fastest of {report.rounds}; the limit"
        )
        for f in report.figures:
            click.echo(
                f"{f.phase:<8} {f.batch:>5} {f.tokens:>6} {f.tokens_per_s:>9,.1f} {f.share_of_limit:>9.0%}   "
                f"{f.slowest_tokens_per_s:,.1f} .. {f.fastest_tokens_per_s:,.1f}; {f.limit}"
            )
        click.echo(
            f"peak memory {report.peak_bytes / 1e9:.2f} GB; weights and KV pool {report.expected_bytes / 1e9:.2f} GB"
        )
