"""Runs `bench compare` from its options to its result: checkpoint, limits, the engines that take part, the rounds."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twostroke.assembly.settings.env import process_environment, processor_name, read_machine
from twostroke.backends.cpu.limits import LimitMeter, Limits, highest_limits
from twostroke.lab.bench import cases as case_room
from twostroke.lab.bench.cases import Bound, Case, is_file
from twostroke.lab.bench.compare import Column, Comparison, Contestant, Note, Row, Setup, rows
from twostroke.lab.bench.comparison_text import text
from twostroke.lab.bench.figure import figure
from twostroke.lab.bench.natural_texts import MOST_TOKENS, OWN_TEXTS, TextSet
from twostroke.lab.bench.peers.environment import own_python, python_of
from twostroke.lab.bench.peers.peer import OURS, find_peer
from twostroke.lab.bench.peers.session import Session
from twostroke.lab.bench.random_tensors import Progress
from twostroke.lab.bench.subject import Subject, find_subject, write_exact_file
from twostroke.lab.bench.truth import exact_truth
from twostroke.models.common.registry import read_model
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import INTEGER_WEIGHTS, weight_format
from twostroke.runner.folder import read_folder
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import KVKind
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.json_file import read_object

SEQUENCES = 32
WRITER = "llama_cpp"
"""The peer that writes GGUF files. It is the only peer that is asked to read them."""
ROOM_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """What to compare. folder: a checkpoint or a GGUF file, or None for random weights of `shape`. weights: formats of
    ours or types of GGUF files; empty for the usual ones. cases: empty to measure errors alone. kv: formats of K and V
    in this engine that are measured in addition to bf16."""

    shape: str
    folder: Path | None
    weights: tuple[str, ...]
    peers: tuple[str, ...]
    peers_folder: Path | None
    rounds: int
    threads: int
    cases: tuple[Case, ...]
    kv: tuple[KVKind, ...] = (KVKind.INT8,)
    texts: TextSet = OWN_TEXTS


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that was measured so far; one Result is made each time an engine has run. rounds: the largest number
    of rounds in which an engine was measured; engines that have not run in the last round have one figure less.
    columns: the figures of each engine, one for each round. limits: the machine's rates of reading and of products, the
    highest of those measured at the beginning and around each case. positions: the number of tokens over which the
    errors are means."""

    model: str
    machine: str
    limits: Limits
    rounds: int
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    positions: int = 0

    @property
    def contradictions(self) -> list[str]:
        """Returns a sentence for each pair of figures that cannot both be true. Where there is one, the report is
        wrong."""
        return [row.contradiction for row in self.rows if row.contradiction is not None]

    def text(self) -> str:
        """Returns the comparison as text for people."""
        return text(self.model, self.limits, self.rows, self.columns, self.rounds)

    def figure(self) -> str:
        """Returns the comparison as an SVG picture."""
        return figure(f"{self.model}, {self.limits.threads} threads, tokens a second", self.rows)

    def as_json(self) -> dict[str, Any]:
        """Returns the result as plain values, every round's figure among them."""
        return {
            "model": self.model,
            "machine": self.machine,
            "limits": self.limits.as_json(),
            "rounds": self.rounds,
            "positions": self.positions,
            "rows": [row.as_json() for row in self.rows],
            "raw": {column.contestant.key: column.values for column in self.columns},
            "contradictions": self.contradictions,
            "faults": {column.contestant.key: column.faults for column in self.columns if column.faults},
        }


def run(asked: Asked, clock: Callable[[], float], note: Note, progress: Progress | None) -> Iterator[Result]:
    """Yields the result so far after each turn of an engine, and the complete result last. Raises ConfigError for
    unknown names, ModelError. For a peer that is missing, `note` gets a line that tells how to install the peer."""
    machine = read_machine()
    peers_folder = asked.peers_folder or machine.cache_folder / "peers"
    kinds = [kind for kind in asked.weights if is_file(kind)]
    writer = _writer(kinds, peers_folder)
    subject = find_subject(asked.folder, asked.shape, asked.weights, machine.cache_folder, progress)
    spec = read_model(read_object(subject.folder / "config.json"))
    contestants = _contestants(asked, subject, peers_folder, note)
    setup = _setup(asked, subject, spec, machine.cache_folder)
    if writer is not None:
        _write_files(subject, setup, kinds, writer)
    in_file = _specs_of_files(subject, kinds, spec, machine.cache_folder)

    def limit(case: Case, contestant: Contestant, found: Limits) -> Bound | None:
        kind = contestant.weights
        if kind in in_file:
            return case_room.bound(case, in_file[kind], None, contestant.kv, found)
        return case_room.bound(case, spec, weight_format(kind), contestant.kv, found)

    described = f"{processor_name() or platform.machine()}, {machine.cores} cores, {platform.system()}"
    with ExitStack() as closing:
        known = exact_truth(subject.folder, asked.threads, asked.texts) if subject.has_texts else None
        truth = closing.enter_context(known) if known is not None else None
        meter = LimitMeter(asked.threads, clock)
        closing.callback(meter.close)
        limits = meter.measure()
        note(limits.words())
        comparison = Comparison(setup, asked.cases, clock, note, lambda: meter.measure(rounds=1), truth)
        for columns in comparison.run(contestants, asked.rounds):
            found = tuple(rows(columns, asked.cases, limit))
            around = [each for column in columns for several in column.limits.values() for each in several]
            limits = highest_limits((limits, *around))
            turns = max(column.turns for column in columns)
            positions = len(truth.rows) if truth is not None else 0
            yield Result(subject.name, described, limits, turns, found, tuple(columns), positions)


def _setup(asked: Asked, subject: Subject, spec: Model, cache_folder: Path) -> Setup:
    needed = [case.arguments.get("context", 0) + case.arguments.get("new_tokens", 0) for case in asked.cases]
    needed += [case.arguments.get("tokens", 0) for case in asked.cases]
    needed += [MOST_TOKENS] * subject.has_texts
    logs = cache_folder / "compare"
    logs.mkdir(parents=True, exist_ok=True)
    return Setup(
        model=str(subject.model),
        threads=asked.threads,
        context=max(needed) + ROOM_TOKENS,
        sequences=SEQUENCES,
        variables={**process_environment(), "OMP_NUM_THREADS": str(asked.threads)},
        log_folder=logs,
        vocabulary=spec.vocab_size,
        parameters=spec.parameters(),
    )


def _specs_of_files(subject: Subject, kinds: Sequence[str], spec: Model, cache_folder: Path) -> dict[str, Model]:
    if subject.is_file:
        return {subject.weights[0]: spec}
    return {kind: _spec_of(Path(f"{subject.model}-{kind}.gguf"), cache_folder) for kind in kinds}


def _spec_of(path: Path, cache_folder: Path) -> Model:
    return read_folder(unfold(path, cache_folder))


def _writer(files: Sequence[str], peers_folder: Path) -> Path | None:
    """Returns the Python of the peer that writes these files; None where there are no files. Raises ConfigError where
    that peer is not installed."""
    python = python_of(peers_folder, find_peer(WRITER)) if files else None
    if files and python is None:
        raise ConfigError(
            f"{', '.join(files)}: GGUF files are made by llama.cpp, which is not installed here.",
            fix=f"Run: twostroke bench peers install {WRITER}",
        )
    return python


def _write_files(subject: Subject, setup: Setup, files: Sequence[str], python: Path) -> None:
    """Writes a GGUF file for each type in `files` next to the checkpoint: llama.cpp quantizes it. Of a published
    checkpoint, Twostroke writes the exact weights first, since llama.cpp's driver can only write random ones. Raises
    ConfigError where that is impossible."""
    why = write_exact_file(subject) if subject.is_published else None
    if why is not None:
        raise ConfigError(
            f"{', '.join(files)}: {subject.name} cannot be written as a GGUF file.",
            why=why,
            fix="Leave these types out of --weights.",
        )
    with Session(find_peer(WRITER), python, setup.variables, setup.log_folder / f"{WRITER}.log") as session:
        for kind in files:
            session.ask("prepare", model=setup.model, weights=kind)


def _contestants(asked: Asked, subject: Subject, peers_folder: Path, note: Note) -> list[Contestant]:
    pythons = []
    for peer in [find_peer(name) for name in asked.peers]:
        python = python_of(peers_folder, peer)
        if python is None:
            note(f"{peer.title} is not installed: twostroke bench peers install {peer.name}")
            continue
        if peer.name == WRITER and subject.is_published and not subject.is_file:
            why = write_exact_file(subject)
            if why is not None:
                note(f"{peer.title} is left out: {why}")
                continue
        pythons.append((peer, python))
    made = []
    for weights in subject.weights:
        made += [Contestant(OURS, own_python(), weights, kv) for kv in (KVKind.BF16, *asked.kv)]
        made += [
            Contestant(peer, python, weights)
            for peer, python in pythons
            if weights in INTEGER_WEIGHTS or (is_file(weights) and peer.name == WRITER)
        ]
    return [contestant for contestant in made if contestant.asked(asked.cases) or subject.has_texts]
