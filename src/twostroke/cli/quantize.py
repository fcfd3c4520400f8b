"""`twostroke quantize`: writes a model with fewer bits, calibrated on a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from twostroke.cli.shared.command import ExampleCommand, clear_errors, output_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.progress import STEPS, progress_bar
from twostroke.types.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.quantize.driver.calibrate_keys import KeyReport
    from twostroke.quantize.driver.report import Report
    from twostroke.quantize.driver.texts import CalibrationText

DEFAULT_TOKENS = 32768
KEYS = "keys"


@dataclass(frozen=True)
class QuantizeFlags:
    """The flags of the format that is written, of its folder, and of the text of the calibration."""

    target: str = flag(
        "--to",
        metavar="FORMAT",
        required=True,
        help="int4, int8, gptq, awq, gguf:Q4_K_M (Q8_0, Q6_K, Q4_0), or keys.",
    )
    output: Path | None = flag(
        "--output",
        metavar="FOLDER",
        default=None,
        type=click.Path(path_type=Path),
        help="A folder that is made, or a FILE.gguf; with --to keys, a copy of MODEL [default there: MODEL's own].",
    )
    text: Path | None = flag(
        "--text",
        metavar="FILE",
        default=None,
        type=click.Path(path_type=Path),
        help="Plain text like what the model will read [default: an embedded text].",
    )
    tokens: int = flag(
        "--tokens",
        metavar="COUNT",
        default=DEFAULT_TOKENS,
        type=click.IntRange(2048, 1 << 24),
        help=f"Tokens of the text for calibration [default: {DEFAULT_TOKENS}].",
    )
    threads: int | None = flag(
        "--threads", metavar="COUNT", default=None, type=click.IntRange(1, 256), help="[default: all cores]."
    )
    no_report: bool = flag("--no-report", is_flag=True, help="Do not compare the result with the original.")
    revision: str | None = flag("--revision", metavar="REV", default=None, help="Hub revision [default: main].")


@click.command(cls=ExampleCommand, example="twostroke quantize meta-llama/Llama-3.2-1B --to gptq --output llama-gptq")
@click.argument("model")
@taking(QuantizeFlags)
@output_flags
def command(model: str, asked: QuantizeFlags, as_json: bool, verbose: bool) -> None:
    """Write MODEL with fewer bits to FOLDER, which `twostroke serve FOLDER` serves.

    The model runs on the text layer by layer, so that codes are chosen for the inputs that each product really has.
    `twostroke serve MODEL --weights int4` takes the result of --to int4 too, as long as neither MODEL nor the result
    has changed. After an interruption the same command goes on where it stopped. At the end KL and perplexity are
    measured on a part of the text that was held out; quantize-report.json in the folder keeps them.

    --to keys leaves the weights as they are. It writes key_factors.json next to them. This file has the factor by which
    each channel of K is divided before it is stored in int8 or int4. `twostroke serve` uses the file where --kv-format
    rounds K.
    """
    with clear_errors(verbose):
        from twostroke.assembly.folders import locate
        from twostroke.assembly.settings.env import read_machine
        from twostroke.quantize.driver.calibrate import read_original
        from twostroke.quantize.driver.texts import read_texts
        from twostroke.runner.folder import read_folder
        from twostroke.text.tokenizer import Tokenizer
        from twostroke.types.pooling import Task

        write, only_keys = _writer(asked.target, asked.output), asked.target == KEYS
        if only_keys:
            _check_copy(model, asked.output)
        with progress_bar("download") as downloading:
            folder = locate(model, asked.revision, downloading, read_machine().cache_folder).path
        spec, cores = (read_folder if only_keys else read_original)(folder), asked.threads or read_machine().cores
        compared = not asked.no_report and spec.task is Task.GENERATE
        texts = read_texts(asked.text, Tokenizer.from_folder(folder), spec.max_positions, asked.tokens)
        report = write(folder, asked.output or folder, texts, cores, compared)
        if as_json:
            print_json(report.as_json())
        else:
            click.echo(report.as_text())


class Reported(Protocol):
    """A report about the result, for people and for programs."""

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""

    def as_text(self) -> str:
        """Returns the report in a few lines."""


Write = Callable[[Path, Path, "CalibrationText", int, bool], Reported]
"""write(source, output, texts, threads, compared) writes the result to `output` and returns a report. compared: whether
KL and perplexity are measured."""


def _check_copy(model: str, output: Path | None) -> None:
    """Checks the folder to which --to keys writes key_factors.json. Raises ConfigError where --output is no folder, and
    where a model of this package is named without --output, because nothing is written into the package."""
    from twostroke.assembly.folders import SHIPPED

    if output is None and model in SHIPPED:
        raise ConfigError(f"{model} is a part of this program.", fix="Name a copy of its folder by --output.")
    if output is not None and not output.is_dir():
        raise ConfigError(
            f"--output {output} is no folder.",
            why="--to keys writes a file next to the weights of a copy of the model.",
            fix="Name a folder that holds the model, for example what --to int4 wrote, or leave it out.",
        )


def _writer(target: str, output: Path | None) -> Write:
    """Returns the function that writes the format of --to. Raises ConfigError for an unknown --to, and where --output
    is missing."""
    from twostroke.quantize.driver.methods import METHODS
    from twostroke.quantize.gguf.write import MIXES

    kind, _, mix = target.partition(":")
    if target == KEYS:
        return _keys
    if output is None:
        raise ConfigError(f"--to {target[:60]} needs --output FOLDER.", fix="Name a folder that is not there yet.")
    if target in METHODS:
        return partial(_calibrated, target)
    if kind == "gguf" and mix.upper() in MIXES:
        return partial(_gguf, mix.upper())
    raise ConfigError(
        f"--to {target[:60]!r} is no format.",
        fix=f"There are {', '.join(METHODS)}, {', '.join(f'gguf:{name}' for name in MIXES)}, {KEYS}.",
    )


def _keys(folder: Path, output: Path, texts: CalibrationText, cores: int, compared: bool) -> KeyReport:
    from twostroke.quantize.driver.calibrate_keys import calibrate_keys

    with progress_bar("calibrate") as progress:
        return calibrate_keys(folder, output, texts, cores, compared, progress)


def _calibrated(target: str, folder: Path, output: Path, texts: CalibrationText, cores: int, compared: bool) -> Report:
    from twostroke.assembly.settings.env import read_machine
    from twostroke.quantize.driver.calibrate import quantize_folder
    from twostroke.quantize.driver.job import JobFolder
    from twostroke.quantize.driver.kept_result import note_result
    from twostroke.quantize.driver.methods import METHODS
    from twostroke.quantize.driver.report import make_report, plain_report

    with progress_bar("quantize") as progress:
        quantized = quantize_folder(folder, output, METHODS[target], texts, cores, progress)
    if quantized.from_stage:
        click.echo(f"stages 1 to {quantized.from_stage} were there from an earlier run", err=True)
    if not compared:
        report = plain_report(folder, target, quantized, texts, None)
    else:
        with progress_bar("compare", STEPS) as progress:
            report = make_report(folder, target, quantized, texts, cores, progress)
    JobFolder(output, quantized.stages).write_report(report.as_json())
    taken = note_result(read_machine().cache_folder, folder, output, target)
    if taken is not None:
        click.echo(f"`--weights {taken}` of the original takes these weights from now on", err=True)
    return report


def _gguf(mix: str, folder: Path, output: Path, texts: CalibrationText, cores: int, compared: bool) -> Report:
    from twostroke.quantize.driver.calibrate import Quantized
    from twostroke.quantize.driver.report import make_report, plain_report
    from twostroke.quantize.gguf.write import MIXES, write_folder
    from twostroke.weights.gguf.unfold import unfold

    with progress_bar("quantize") as progress:
        file = write_folder(folder, output, MIXES[mix], folder.resolve().name, progress)
    quantized = Quantized(output, 0, (), {}, 0, 0)
    if not compared:
        return plain_report(folder, f"gguf:{mix}", quantized, texts, None)
    with progress_bar("compare", STEPS) as progress:
        return make_report(folder, f"gguf:{mix}", quantized, texts, cores, progress, read_from=unfold(file, None))
