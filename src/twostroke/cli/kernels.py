"""`twostroke kernels`: the kernel that runs for each op."""

from __future__ import annotations

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json


@click.command(cls=ExampleCommand, example="twostroke kernels spark --level generic")
@click.argument("model", required=False)
@click.option("--level", default=None, help="Kernels of this level, or `cuda` [default: the best that this CPU runs].")
@output_flags
def command(model: str | None, level: str | None, as_json: bool, verbose: bool) -> None:
    """Show which kernel runs for which op, format and number of rows, as the kernels themselves report it.

    With MODEL (spark, a folder, a hub id), only the ops of its program are shown; only its config.json is read. The
    rows of a product are those that are multiplied together: up to 128. More rows may be divided into parts.
    """
    with clear_errors(verbose):
        from twostroke.backends.cpu.kernel_table import kernel_table
        from twostroke.backends.cpu.library import best_level, require_level
        from twostroke.backends.cpu.ops import CpuOps
        from twostroke.backends.cuda.kernel_names import LEVEL, CudaKernels
        from twostroke.lab.planner.model_config import read_model

        if level not in (None, LEVEL):
            require_level(level)
        names = None if model is None else frozenset(call.NAME for call in read_model(model).spec.program.calls)
        ops = CudaKernels() if level == LEVEL else CpuOps(level or best_level(), 1)
        rows = kernel_table(ops, names)
        ops.close()
        if as_json:
            print_json({"level": ops.level, "model": model, "kernels": [row.as_json() for row in rows]})
            return
        click.echo(f"kernels of level {ops.level}" + ("" if model is None else f", ops of {model}"))
        widths = max(len(row.op) for row in rows), max(6, *(len(row.format) for row in rows))
        click.echo(f"{'op':<{widths[0]}}  {'format':<{widths[1]}}  {'rows':<11}  kernel")
        for row in rows:
            kernel = row.kernel or f"{row.op}: one form" + (" for this format" if row.format else "")
            heads = f", heads of {row.heads}" if row.heads else ""
            click.echo(f"{row.op:<{widths[0]}}  {row.format:<{widths[1]}}  {row.rows:<11}  {kernel}{heads}")
