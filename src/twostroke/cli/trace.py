"""`twostroke trace`: the contents of step records, as words, as JSON, and as a Chrome trace for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.cli.bench.load_flags import read_file
from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json

if TYPE_CHECKING:
    from twostroke.cost.history.record_json import Record


@click.command(cls=ExampleCommand, example="twostroke trace steps.jsonl --perfetto steps.json")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--perfetto", metavar="FILE.json", type=click.Path(path_type=Path), default=None, help="Write a Chrome trace."
)
@output_flags
def command(file: Path, perfetto: Path | None, as_json: bool, verbose: bool) -> None:
    """Read the step records that `twostroke serve --trace FILE` wrote.

    A Chrome trace opens in Perfetto (ui.perfetto.dev) and in chrome://tracing: one lane of steps, one lane for each
    request. `twostroke simulate --trace FILE` replays the same records.
    """
    with clear_errors(verbose):
        import json

        from twostroke.cli.shared.output_file import check_place, write_whole
        from twostroke.cost.history.perfetto import trace
        from twostroke.cost.history.record_json import read_lines

        if perfetto is not None:
            check_place(perfetto, "--perfetto")
        records = list(read_lines(read_file(file, "").splitlines(), file.name))
        if perfetto is not None:
            write_whole(perfetto, json.dumps(trace({file.name: records})), "--perfetto")
        found = _summary(records)
        if as_json:
            print_json(found)
            return
        click.echo(
            f"{found['steps']:,} steps in {found['seconds']:,.1f} s, {found['requests']:,} requests ended\n"
            f"of the steps' time {found['model_share']:.1%} model, {found['sampling_share']:.1%} sampling, "
            f"{found['host_share']:.1%} host; {found['prefill_step_share']:.1%} of the steps read prompts"
        )
        if found["predicted_over_measured"] is not None:
            click.echo(f"predicted over measured: {found['predicted_over_measured']:.3f}")


def _summary(records: list[Record]) -> dict[str, Any]:
    from twostroke.cost.history.record import StepRecord
    from twostroke.types.plan import Role

    steps = [record for record in records if isinstance(record, StepRecord)]
    total_s = sum(step.seconds for step in steps) or 1.0
    with_prediction = [step for step in steps if step.predicted is not None]
    measured_s = sum(step.seconds for step in with_prediction)
    predicted_s = sum(step.predicted.seconds for step in with_prediction if step.predicted is not None)
    reading = sum(any(each.segment.role is Role.PREFILL for each in step.sequences) for step in steps)
    return {
        "steps": len(steps),
        "requests": len(records) - len(steps),
        "seconds": steps[-1].end_s - steps[0].begin_s if steps else 0.0,
        "model_share": sum(step.model_s for step in steps) / total_s,
        "sampling_share": sum(step.sampling_s for step in steps) / total_s,
        "host_share": sum(step.host_s for step in steps) / total_s,
        "prefill_step_share": reading / max(1, len(steps)),
        "predicted_over_measured": predicted_s / measured_s if with_prediction else None,
    }
