"""`twostroke bench speculate` measures whether guessing is slower anywhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click

from twostroke.assembly.settings.engine_settings import (
    CacheSettings,
    CpuSettings,
    ModelSettings,
    SpeculateSettings,
    StepSettings,
)
from twostroke.assembly.settings.options import ENGINE_OPTIONS
from twostroke.cli.shared.command import ExampleCommand, clear_errors, option_flags, output_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.types.errors import ConfigError


@dataclass(frozen=True)
class SituationFlags:
    """The flags that choose the way of guessing that is measured, and the sizes of the workloads (situations) on which
    it is measured."""

    way: str | None = flag("--way", default=None, help="The way of guessing [default: that of --speculate, or auto].")
    rounds: int = flag(
        "--rounds", type=click.IntRange(2), default=21, help="Rounds of each situation [default: 21]."
    )
    tokens: int = flag(
        "--tokens", type=click.IntRange(8), default=256, help="One stream writes; others a quarter [default: 256]."
    )
    streams: int = flag(
        "--streams", type=click.IntRange(2, 512), default=32, help="Where there are many [default: 32]."
    )


@click.command(cls=ExampleCommand, example="twostroke bench speculate --rounds 21 --threads 1 --json")
@click.argument("model", default="spark")
@taking(SituationFlags)
@option_flags(ENGINE_OPTIONS)
@output_flags
def speculate(model: str, asked: SituationFlags, as_json: bool, verbose: bool, **options: Any) -> None:
    """Measure five situations in which guessing can hardly win, with guesses and without: do guesses lose more than 2%?

    Each row has the median ratio of speeds (1 is as fast as without guesses), and the interval that contains the true
    median in 95 of 100 measurements. The verdict of a row is holds, loses, or open where noise is too large. Measure on
    a quiet machine; more rounds make the interval smaller.
    """
    with clear_errors(verbose):
        from twostroke.lab.bench.never_lose import BOUND, NeverLose, NeverLoseBench, never_lose, situations
        from twostroke.llm import LLM

        for objective in (StepSettings.ttft, StepSettings.itl):
            if options.get(objective.name) is not None:
                words = f"{objective.flag} is set by the bench itself, for one situation."
                raise ConfigError(words, fix="Leave it out.")
        rounds = asked.rounds
        way = asked.way or str(options.get(SpeculateSettings.speculate.name) or "auto").partition(":")[0]
        bench = NeverLoseBench(way, rounds, time.perf_counter, time.process_time)
        settings: dict[str, Any] = {}

        def make(**more: str) -> LLM:
            llm = LLM(model, **{**options, **more})
            shown = (ModelSettings.weights, CacheSettings.kv_format, CpuSettings.threads, CpuSettings.cpu_level)
            settings.update(llm._built.resolved.values(*shown))
            return llm

        def note(text: str) -> None:
            if not as_json:
                click.echo(text, err=True)

        rows = never_lose(make, bench, situations(asked.tokens, asked.streams), note)
        report = NeverLose(model, way, rounds, settings, tuple(rows))
        if as_json:
            print_json(report.as_json())
            return
        click.echo(f"{model}: {way} against off, {rounds} rounds; the bound is {BOUND:.2f} of off's speed")
        click.echo(f"{'situation':<44} {'ratio':>6}  {'interval':<12} {'verdict':<7} by processor time   guesses")
        for row in rows:
            wall, own = row.wall, row.processor
            click.echo(
                f"{row.name:<44} {wall.median:>6.3f}  {wall.low:.3f}..{wall.high:.3f} {wall.verdict:<7} "
                f"{own.median:.3f} ({own.low:.3f}..{own.high:.3f}) {own.verdict:<6} {row.accepted}/{row.guessed}"
            )
