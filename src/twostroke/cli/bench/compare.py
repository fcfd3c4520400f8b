"""`twostroke bench compare` and `twostroke bench peers`: comparisons with other engines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twostroke.cli.shared.command import ExampleCommand, SuggestingGroup, clear_errors, output_flags, print_json
from twostroke.cli.shared.flag_fields import flag, taking
from twostroke.cli.shared.progress import progress_bar
from twostroke.ops.quant.formats import INTEGER_WEIGHTS, WEIGHT_NAMES

if TYPE_CHECKING:
    from twostroke.lab.bench.run_compare import Asked
    from twostroke.types.spec.formats import KVKind

SHAPE_HELP = "Random weights: llama-3.2-1b, qwen2.5-0.5b, or the path of any config.json."
K_TYPES = ("Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q3_K_M", "Q2_K")
GGUF_TYPES = ("Q8_0", *K_TYPES, "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS")
OUR_OWN = tuple(name for name in WEIGHT_NAMES if name not in INTEGER_WEIGHTS)
WEIGHTS_HELP = (
    f"int8 and int4, which peers make, too; our own {', '.join(OUR_OWN)}; types of GGUF ({', '.join(GGUF_TYPES)}). "
    "Separate them with commas. For a GGUF type, llama.cpp writes one file, which both engines read [default: "
    "int8,int4; a GGUF file's own]."
)
KV_HELP = "Formats of K and V in this engine besides bf16, separated by commas."
TEXT_HELP = "A text on which errors are measured, in place of those that ship with Twostroke; may be repeated."
MODEL_HELP = "A checkpoint folder or a GGUF file instead; then each engine's error against float32 is shown too."
PEERS_HELP = "Where the peers' environments are [default: the cache folder]."


@click.group(cls=SuggestingGroup)
def peers() -> None:
    """Install or list the engines to compare with, each in an environment of its own."""


@peers.command(cls=ExampleCommand, example="twostroke bench peers install llama_cpp")
@click.argument("names", nargs=-1, required=True)
@click.option("--peers-folder", type=click.Path(path_type=Path), default=None, help=PEERS_HELP)
@output_flags
def install(names: tuple[str, ...], peers_folder: Path | None, as_json: bool, verbose: bool) -> None:
    """Install engines to compare with: openvino, llama_cpp, onnxruntime, vllm, transformers."""
    with clear_errors(verbose):
        from twostroke.assembly.settings.env import process_environment, read_machine
        from twostroke.lab.bench.peers import environment
        from twostroke.lab.bench.peers.peer import find_peer

        folder = peers_folder or read_machine().cache_folder / "peers"
        installed = {}
        for name, peer in [(name, find_peer(name)) for name in ",".join(names).split(",")]:
            python = environment.install(folder, peer, process_environment(), lambda line: click.echo(line, err=True))
            installed[name] = str(python)
            if not as_json:
                click.echo(f"{peer.title}: {python}")
        if as_json:
            print_json(installed)


@peers.command(name="list", cls=ExampleCommand, example="twostroke bench peers list")
@click.option("--peers-folder", type=click.Path(path_type=Path), default=None, help=PEERS_HELP)
@output_flags
def list_peers(peers_folder: Path | None, as_json: bool, verbose: bool) -> None:
    """Show which engines are installed."""
    with clear_errors(verbose):
        from twostroke.assembly.settings.env import read_machine
        from twostroke.lab.bench.peers.environment import python_of
        from twostroke.lab.bench.peers.peer import PEERS

        folder = peers_folder or read_machine().cache_folder / "peers"
        found = {name: python_of(folder, peer) for name, peer in PEERS.items()}
        if as_json:
            print_json({name: None if python is None else str(python) for name, python in found.items()})
            return
        for name, python in found.items():
            click.echo(f"{name:<14} {python or f'not installed: twostroke bench peers install {name}'}")


@dataclass(frozen=True)
class CompareFlags:
    """The flags that choose the model, the engines and the rounds of a comparison, and the file for its result."""

    shape: str = flag("--shape", default="llama-3.2-1b", help=SHAPE_HELP)
    folder: Path | None = flag("--model", type=click.Path(path_type=Path), default=None, help=MODEL_HELP)
    weights: str = flag("--weights", default="", help=WEIGHTS_HELP)
    kv: str = flag("--kv-format", default="int8", help=KV_HELP)
    texts: tuple[Path, ...] = flag("--text", type=click.Path(path_type=Path), multiple=True, help=TEXT_HELP)
    errors: bool = flag(
        "--errors", is_flag=True, help="Errors alone: no speed is measured, so that the machine may be busy."
    )
    names: str = flag(
        "--peers", default="openvino,llama_cpp", help="Peers, separated by commas; none for us alone."
    )
    peers_folder: Path | None = flag(
        "--peers-folder", type=click.Path(path_type=Path), default=None, help=PEERS_HELP
    )
    rounds: int = flag("--rounds", type=click.IntRange(min=1), default=3, help="Turns of each engine [default: 3].")
    threads: int = flag("--threads", default=2, help="Threads of every engine [default: 2].")
    quick: bool = flag("--quick", is_flag=True, help="Eight cases instead of twelve.")
    save: Path | None = flag(
        "--save", type=click.Path(path_type=Path), default=None, help="Write JSON after each turn."
    )
    plot: Path | None = flag(
        "--plot", type=click.Path(path_type=Path), default=None, help="Write a picture (SVG) after each turn."
    )

    def comparison(self) -> Asked:
        """Returns the comparison that is asked for. Raises ConfigError and click's error for a wrong value."""
        from twostroke.lab.bench.cases import QUICK, STANDARD
        from twostroke.lab.bench.natural_texts import texts_of
        from twostroke.lab.bench.run_compare import Asked

        return Asked(
            shape=self.shape,
            folder=self.folder,
            weights=_weights(self.weights),
            peers=tuple(name.strip() for name in self.names.split(",") if name.strip() not in ("", "none")),
            peers_folder=self.peers_folder,
            rounds=1 if self.errors else self.rounds,
            threads=self.threads,
            cases=() if self.errors else QUICK if self.quick else STANDARD,
            kv=_kv_kinds(self.kv),
            texts=texts_of(self.texts),
        )


@click.command(cls=ExampleCommand, example="twostroke bench compare --quick --save result.json --plot result.svg")
@taking(CompareFlags)
@output_flags
def compare(asked: CompareFlags, as_json: bool, verbose: bool) -> None:
    """Measure this engine and other engines on the same checkpoint, one after the other, and the limits of the machine.
    With --model, errors against float32 are measured too."""
    with clear_errors(verbose):
        from twostroke.cli.shared.output_file import check_place, write_json, write_whole
        from twostroke.lab.bench.peers.peer import find_peer
        from twostroke.lab.bench.run_compare import run
        from twostroke.types.errors import ConfigError, Contradiction

        if asked.errors and asked.folder is None:
            raise ConfigError("--errors was given for random weights.", fix="Name a checkpoint: --model FOLDER_OR_FILE")
        save, plot = asked.save, asked.plot
        for path, option in ((save, "--save"), (plot, "--plot")):
            if path is not None:
                check_place(path, option)
        comparison = asked.comparison()
        for name in comparison.peers:
            find_peer(name)  # checked before gigabytes are written
        with progress_bar("checkpoint") as progress:
            for result in run(comparison, time.perf_counter, lambda line: click.echo(line, err=True), progress):
                if save is not None:
                    write_json(save, result.as_json(), "--save")
                if plot is not None:
                    write_whole(plot, result.figure(), "--plot")
        if as_json:
            print_json(result.as_json())
        else:
            click.echo(result.text())
        if result.contradictions:
            raise Contradiction(
                "Figures of this report contradict each other.",
                why=result.contradictions[0],
                fix="Run it again when other programs leave the machine alone.",
            )


def _weights(text: str) -> tuple[str, ...]:
    return _known(text, (*INTEGER_WEIGHTS, *OUR_OWN, *GGUF_TYPES))


def _kv_kinds(text: str) -> tuple[KVKind, ...]:
    """Returns the KV formats that the text names, without bf16, which is always measured."""
    from twostroke.types.spec.formats import KVKind

    kinds = {kind.name.lower(): kind for kind in KVKind}
    return tuple(kinds[name] for name in _known(text, tuple(kinds)) if name != "bf16")


def _known(text: str, known: Sequence[str]) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",") if part.strip() not in ("", "none"))
    wrong = next((part for part in parts if part not in known), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is none of {', '.join(known)}")
    return tuple(dict.fromkeys(parts))
