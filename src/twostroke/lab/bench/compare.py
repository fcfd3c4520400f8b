"""Compares this engine with its peers on the same checkpoint and the same prompts. The results are medians and ratios.

In each round the engines run one after the other, and each runs all its cases. An engine's process ends before the next
begins, so that nothing else holds memory or a core while it is measured. Its start is timed. A shared machine's limits
change within minutes, so they are measured again around each of this engine's cases.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from twostroke.backends.cpu.limits import Limits, highest_limits, median_limits
from twostroke.lab.bench.busy import busy_programs
from twostroke.lab.bench.cases import (
    BITS,
    COLD_START,
    ERROR,
    FIDELITY,
    KL,
    MEMORY,
    NARROW,
    SAME,
    START,
    Bound,
    Case,
    with_kv,
)
from twostroke.lab.bench.evict import evict
from twostroke.lab.bench.fidelity import TOP
from twostroke.lab.bench.peers.peer import OURS, Peer
from twostroke.lab.bench.peers.session import Missing, PeerFault, Session
from twostroke.lab.bench.truth import Truth
from twostroke.types.spec.formats import KVKind

Note = Callable[[str], None]
WARM_TOKENS = 16
TOLERANCE = 0.05
"""An engine's figure may exceed the machine's limit by this share, because the machine's speed may change between the
two measurements."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """An engine in a comparison, and the Python that runs it. weights: a weight format of Twostroke, or a type of GGUF
    files, in which case all engines read the same file. kv: the format in which the engine keeps K and V. With another
    format than bf16, only the cases in NARROW are run."""

    peer: Peer
    python: Path
    weights: str
    kv: KVKind = KVKind.BF16

    @property
    def key(self) -> str:
        """The engine's name with its formats, which is unique in a run."""
        return f"{self.peer.name} {self.weights}" + (f", K and V {self.kv.name.lower()}" if self.is_narrow else "")

    @property
    def is_narrow(self) -> bool:
        """Whether K and V are in float32, int8 or int4; False for bf16, which is the usual format of comparisons."""
        return self.kv is not KVKind.BF16

    def asked(self, cases: Sequence[Case]) -> list[Case]:
        """Returns the cases that this engine runs: all, or with K and V in another format than bf16 only those in
        NARROW."""
        return [case for case in cases if case in NARROW or not self.is_narrow]


@dataclass(slots=True)
class Column:
    """The figures of one contestant. values: figures by case name, one for each round. limits: the machine's limits by
    case name, measured before and after each figure; only Twostroke's column has them. faults: why a case has no
    figures, keyed by case name."""

    contestant: Contestant
    values: dict[str, list[float]] = field(default_factory=dict)
    limits: dict[str, list[Limits]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """The largest number of rounds in which a case was measured."""
        return max((len(found) for found in self.values.values()), default=0)

    def median(self, case: Case) -> float | None:
        """Returns the median of the case over the rounds; None where it has no figure."""
        found = self.values.get(case.name)
        return statistics.median(found) if found else None


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings that every contestant gets. model: a folder, or a GGUF file. vocabulary: random token ids lie below
    this number. parameters: the number of the model's parameters; 0 where they are not counted."""

    model: str
    threads: int
    context: int
    sequences: int
    variables: Mapping[str, str]
    log_folder: Path
    vocabulary: int = 50_000
    parameters: int = 0


class Comparison:
    """Runs the engines in rounds, one after the other; each round measures all cases. clock: returns seconds. measure:
    returns the machine's limits at the moment. truth: the log probabilities of a published checkpoint in float32; None
    for random weights, with which texts cannot be judged."""

    def __init__(
        self,
        setup: Setup,
        cases: Sequence[Case],
        clock: Callable[[], float],
        note: Note,
        measure: Callable[[], Limits],
        truth: Truth | None = None,
    ) -> None:
        self._setup, self._cases, self._clock, self._note, self._measure_limits = setup, cases, clock, note, measure
        self._truth = truth

    def run(self, contestants: Sequence[Contestant], rounds: int) -> Iterator[list[Column]]:
        """Runs `rounds` rounds, in which each contestant runs all its cases. Yields all columns so far after each
        contestant. A fault of one case or engine ends only that case or engine."""
        columns = [Column(contestant) for contestant in contestants]
        for round_index in range(1, rounds + 1):
            for column in columns:
                self._note(f"round {round_index} of {rounds}: {column.contestant.key}")
                try:
                    self._turn(column)
                except PeerFault as fault:
                    column.faults.setdefault("all", str(fault))
                    self._note(f"  {fault}")
                yield columns

    def _turn(self, column: Column) -> None:
        contestant = column.contestant
        log = self._setup.log_folder / f"{contestant.peer.name}.log"
        self._prepare(contestant, log)
        if self._cases and not contestant.is_narrow:
            self._cold_start(column, log)
        began_s = self._clock()
        with self._session(contestant, log) as session:
            self._first_token(session, contestant)
            if self._cases:
                column.values.setdefault(START.name, []).append(self._clock() - began_s)
                session.ask("prefill", tokens=WARM_TOKENS)
            for case in contestant.asked(self._cases):
                self._measure(session, column, case)
            if self._cases:
                column.values.setdefault(MEMORY.name, []).append(session.peak_bytes())
            if self._truth is not None and ERROR.name not in column.values:
                self._compare(session, column, self._truth)

    def _compare(self, session: Session, column: Column, truth: Truth) -> None:
        """Measures how far the engine is from float32. Once is enough: an engine's arithmetic is the same in each
        round."""
        self._count_bits(session, column)
        try:
            heard = session.ask(ERROR.command, texts=truth.texts, top=TOP)
        except Missing:
            column.faults[ERROR.name] = "not offered"
            return
        found = truth.fidelity(heard)
        for case, value in ((ERROR, found.error), (KL, found.kl), (SAME, found.same)):
            column.values[case.name] = [value]
        self._note(f"  {ERROR.name}: {found.error:.4f}, 99% within {found.p99:.3f}, of {found.positions} positions")

    def _count_bits(self, session: Session, column: Column) -> None:
        try:
            held = session.ask(BITS.command)
        except Missing:
            column.faults[BITS.name] = "not offered"
            return
        if self._setup.parameters:
            column.values[BITS.name] = [8 * held / self._setup.parameters]

    def _session(self, contestant: Contestant, log: Path) -> Session:
        return Session(contestant.peer, contestant.python, self._setup.variables, log)

    def _first_token(self, session: Session, contestant: Contestant) -> None:
        setup = self._setup
        sizes: dict[str, Any] = {"threads": setup.threads, "context": setup.context, "sequences": setup.sequences}
        sizes["vocabulary"] = setup.vocabulary
        if contestant.is_narrow:
            sizes["kv"] = contestant.kv.name.lower()
        session.ask("load", model=setup.model, weights=contestant.weights, **sizes)
        session.ask("prefill", tokens=WARM_TOKENS)

    def _cold_start(self, column: Column, log: Path) -> None:
        """Times a separate start, after the files that the engine reads were dropped from memory."""
        contestant = column.contestant
        try:
            with self._session(contestant, log) as session:
                files = session.ask("files", model=self._setup.model, weights=contestant.weights)
        except Missing:
            column.faults.setdefault(COLD_START.name, "not offered")
            return
        evict(files)
        began_s = self._clock()
        with self._session(contestant, log) as session:
            self._first_token(session, contestant)
        column.values.setdefault(COLD_START.name, []).append(self._clock() - began_s)

    def _prepare(self, contestant: Contestant, log: Path) -> None:
        """Exports the checkpoint for the engine, so that the timed start contains no export."""
        with self._session(contestant, log) as session:
            try:
                session.ask("prepare", model=self._setup.model, weights=contestant.weights)
            except Missing:
                return

    def _measure(self, session: Session, column: Column, case: Case) -> None:
        if case.name in column.faults:
            return
        ours = column.contestant.peer.name == OURS.name
        before = self._measure_limits() if ours else None
        try:
            with busy_programs(case.busy):
                found = [float(session.ask(case.command, **case.arguments)) for _ in range(case.times)]
        except Missing:
            column.faults[case.name] = "not offered"
            return
        value = statistics.median(found)
        column.values.setdefault(case.name, []).append(value)
        if before is not None:
            limits = highest_limits((before, self._measure_limits()))
            column.limits.setdefault(case.name, []).append(limits)
        self._note(f"  {case.name}: {value:,.2f}")


def ratio_to_best(case: Case, ours: float, others: Sequence[float]) -> float | None:
    """Returns how many times better `ours` is than the best of the others. Returns None without others, and where a
    figure to divide by is 0."""
    if not others or not ours or not min(others):
        return None
    return ours / max(others) if case.higher else min(others) / ours


@dataclass(frozen=True, slots=True)
class Row:
    """One case with one kind of weights. values: the figures by engine name."""

    case: Case
    weights: str
    values: dict[str, float | None]
    bound: Bound | None

    @property
    def ours(self) -> float | None:
        """Twostroke's figure for this case; None where it has none."""
        return self.values.get(OURS.name)

    @property
    def share_of_limit(self) -> float | None:
        """This engine's figure divided by the highest rate that the machine allows; None where one of the two is
        missing."""
        return self.ours / self.bound.tokens_per_s if self.ours is not None and self.bound is not None else None

    @property
    def contradiction(self) -> str | None:
        """A sentence where this engine's figure is above the machine's limit, which means that one of the two was
        measured badly; None otherwise."""
        if self.ours is None or self.bound is None or self.ours <= self.bound.tokens_per_s * (1 + TOLERANCE):
            return None
        return (
            f"{self.weights} {self.case.name}: {self.ours:,.1f} tok/s were measured, and the limit is "
            f"{self.bound.tokens_per_s:,.1f} tok/s ({self.bound.words})"
        )

    @property
    def times_best(self) -> float | None:
        """How many times better Twostroke's figure is than the best figure of any other engine. None without
        Twostroke's figure, or without any other."""
        others = [value for name, value in self.values.items() if name != OURS.name and value is not None]
        return None if self.ours is None else ratio_to_best(self.case, self.ours, others)

    def as_json(self) -> dict[str, Any]:
        """Returns the row as plain values."""
        return {
            "case": self.case.name,
            "unit": self.case.unit,
            "weights": self.weights,
            "values": self.values,
            "limit": None if self.bound is None else self.bound.tokens_per_s,
            "limit_words": None if self.bound is None else self.bound.words,
            "share_of_limit": self.share_of_limit,
            "times_best_peer": self.times_best,
        }


def rows(
    columns: Sequence[Column], cases: Sequence[Case], bounds: Callable[[Case, Contestant, Limits], Bound | None]
) -> list[Row]:
    """Returns the rows of the table, one kind of weights after the other. Each kind ends with the cases in which this
    engine keeps K and V in another format. The rows of these cases repeat the figures that other engines reached with K
    and V in bf16."""
    made = []
    for weights in dict.fromkeys(column.contestant.weights for column in columns):
        plain = [
            column for column in columns if column.contestant.weights == weights and not column.contestant.is_narrow
        ]
        timed = (*cases, START, COLD_START, MEMORY) if cases else ()
        asked_of_all = (*timed, *(case for case in FIDELITY if _has(plain, case)))
        made += [_row(case, plain, bounds) for case in asked_of_all]
        for own in (
            column for column in columns if column.contestant.weights == weights and column.contestant.is_narrow
        ):
            beside = [own, *(column for column in plain if column.contestant.peer is not own.contestant.peer)]
            asked = [*own.contestant.asked(cases), *(case for case in (ERROR, KL, SAME) if _has([own], case))]
            made += [replace(_row(case, beside, bounds), case=with_kv(case, own.contestant.kv)) for case in asked]
    return made


def _has(columns: Sequence[Column], case: Case) -> bool:
    return any(case.name in column.values for column in columns)


def _row(case: Case, columns: Sequence[Column], bounds: Callable[[Case, Contestant, Limits], Bound | None]) -> Row:
    """Returns the row of one case. columns: the columns with the same weights, this engine's first."""
    contestant = columns[0].contestant
    values = {column.contestant.peer.name: column.median(case) for column in columns}
    found = [limits for column in columns for limits in column.limits.get(case.name, ())]
    return Row(case, contestant.weights, values, bounds(case, contestant, median_limits(found)) if found else None)
