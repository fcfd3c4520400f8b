"""`twostroke bench serve`: load on any server with the OpenAI API, with figures under stated definitions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.bench.load_flags import (
    DEFAULT_URL,
    TARGET_FLAGS,
    count_flag,
    flags,
    read_file,
    read_target,
    time_flag,
)
from twostroke.cli.bench.load_progress import load_progress
from twostroke.cli.shared.command import ExampleCommand, clear_errors, print_json

if TYPE_CHECKING:
    from twostroke.lab.bench.load.choose import LoadAsk, Workload
    from twostroke.lab.bench.load.report import LoadReport
    from twostroke.lab.bench.load.session import Target
    from twostroke.lab.workload.objectives import Objectives
    from twostroke.text.tokenizer import Tokenizer

EXAMPLE = (
    "twostroke bench serve --concurrency 8 --requests 100 --prompt 256 --output 128\n"
    "         twostroke bench serve http://127.0.0.1:8000 --rate 2 --requests 100 --ttft 1s --itl 50ms\n"
    "         twostroke bench serve --trace conversation_trace.jsonl --requests 200 --save report.json"
)

LOAD_FLAGS = (
    count_flag("--concurrency", "Closed loop: COUNT users, each of whom waits for its answer [default: 1]."),
    click.option(
        "--rate", type=click.FloatRange(0, min_open=True), default=None, help="Open loop: requests a second, Poisson."
    ),
    click.option(
        "--burstiness",
        type=click.FloatRange(0, min_open=True),
        default=1.0,
        help="Shape of the gaps with --rate: below 1 in bursts, above 1 steadier [default: 1, Poisson].",
    ),
    count_flag("--requests", "How many [default: 100, or all of a trace]."),
    time_flag("--duration", "Send nothing more after this time."),
    count_flag("--prompt", "Prompt tokens [default: 128].", "128"),
    count_flag("--output", "Output tokens [default: 64].", "64"),
    click.option(
        "--spread", type=click.FloatRange(0, 3), default=0.0, help="Log-normal sigma of both lengths [default: 0]."
    ),
    click.option(
        "--workload",
        metavar="NAME",
        default=None,
        help="steady-chat, long-document-bursts, shared-prefix-agents, mixed-batch-interactive or overload.",
    ),
    click.option("--trace", metavar="FILE", type=click.Path(path_type=Path), default=None, help="Replay a trace."),
    click.option(
        "--trace-format", metavar="NAME", default=None, help="sharegpt, mooncake or azure [default: by its first line]."
    ),
    click.option(
        "--rate-scale",
        type=click.FloatRange(0, min_open=True),
        default=1.0,
        help="Replay a trace faster by this factor [default: 1].",
    ),
    click.option(
        "--tokens-scale", type=click.FloatRange(0, min_open=True), default=1.0, help="Times all lengths [default: 1]."
    ),
    count_flag("--max-prompt", "Clip longer prompts."),
    count_flag("--max-output", "Clip longer answers."),
    time_flag("--ttft", "Objective for goodput: time to first token."),
    time_flag("--itl", "Objective for goodput: 95% of a request's gaps."),
    time_flag("--tpot", "Objective for goodput: mean time of a token after the first."),
    time_flag("--e2e", "Objective for goodput: the whole answer."),
    click.option("--save", metavar="FILE.json", type=click.Path(path_type=Path), default=None, help="Write a report."),
)


@click.command(cls=ExampleCommand, example=EXAMPLE)
@click.argument("url", default=DEFAULT_URL)
@flags(*LOAD_FLAGS, *TARGET_FLAGS)
def serve(url: str, as_json: bool, verbose: bool, save: Path | None, **options: Any) -> None:
    """Send load to the server at URL (any with the OpenAI API) and measure its answers.

    TTFT counts from when a request should have been sent; token counts come from the server's usage. The same
    requests are also given under the definitions of vLLM's bench, AIPerf and GuideLLM. Ctrl-C ends the run and keeps
    what was measured.
    """
    with clear_errors(verbose):
        import asyncio

        from twostroke.cli.shared.output_file import check_place, place_for, write_json
        from twostroke.lab.bench.load.choose import make_workload

        if save is not None:
            check_place(save, "--save")
        target = read_target(url, options)
        workload = make_workload(load_ask(options, target.tokenizer))
        report = asyncio.run(_run(target, workload, read_objectives(options), options))
        if save is not None:
            place = place_for(save, report.measured.interrupted)
            write_json(place, report.as_json(), "--save")
            click.echo(f"report: {place}", err=True)
        if as_json:
            print_json(report.as_json(requests=False))
        else:
            click.echo(report.text())
        _end(report)


def _end(report: LoadReport) -> None:
    """Ends the process with code 130 after Ctrl-C, and with code 1 where no request was answered."""
    if report.measured.interrupted:
        raise SystemExit(130)
    if not report.figures.completed:
        click.echo("error: no request was answered", err=True)
        raise SystemExit(1)


async def _run(target: Target, workload: Workload, objectives: Objectives, options: dict[str, Any]) -> LoadReport:
    from twostroke.lab.bench.load.report import make_report
    from twostroke.lab.bench.load.session import open_session

    wordless = any(request.text is None for request in workload.requests)
    async with open_session(target, time.perf_counter, wordless) as session:
        await session.warm_up(workload.requests, options["warmup"], options["seed"])
        with load_progress() as watch:
            measured = await session.measure(
                workload.requests, workload.users, options["seed"], options["duration"], watch
            )
    kept = {name: value for name, value in options.items() if name != "api_key" and value is not None}
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in kept.items()}
    return make_report(session.facts, workload.words, settings, measured, objectives)


def load_ask(options: dict[str, Any], tokenizer: Tokenizer | None) -> LoadAsk:
    """Returns the workload that LOAD_FLAGS describe."""
    from twostroke.lab.bench.load.choose import LoadAsk, Trace
    from twostroke.lab.workload.lengths import Lengths
    from twostroke.lab.workload.sharegpt import about_tokens

    path, trace = options["trace"], None
    if path is not None:
        count = about_tokens if tokenizer is None else (lambda text: len(tokenizer.encode_prompt(text)))
        trace = Trace(read_file(path), path.name, options["trace_format"], count)
    return LoadAsk(
        users=options["concurrency"],
        rate_per_s=options["rate"],
        burstiness=options["burstiness"],
        requests=options["requests"],
        prompt=Lengths(options["prompt"], options["spread"]),
        output=Lengths(options["output"], options["spread"]),
        named=options["workload"],
        trace=trace,
        rate_scale=options["rate_scale"],
        tokens_scale=options["tokens_scale"],
        max_prompt_tokens=options["max_prompt"],
        max_output_tokens=options["max_output"],
        seed=options["seed"],
    )


def read_objectives(options: dict[str, Any]) -> Objectives:
    """Returns the objectives that LOAD_FLAGS give."""
    from twostroke.lab.workload.objectives import Objectives

    return Objectives(options["ttft"], options["itl"], options["tpot"], options["e2e"])
