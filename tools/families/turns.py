"""Runs both engines on one file in turn: each answers all cases in a process of its own before the other's turn.

The machine's limits are measured around each case of this engine, because they change within minutes on a shared
machine.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twostroke.backends.cpu.limits import LimitMeter, Limits, median_limits
from twostroke.lab.bench.cases import Case, bound
from twostroke.lab.bench.peers.peer import OURS, Peer
from twostroke.lab.bench.peers.session import PeerFault, Session
from twostroke.ops.program.model import Model
from twostroke.types.spec.formats import KVKind

WARM_TOKENS = 16
ROOM_TOKENS = 64
CASE_TIMEOUT_S = 3600.0
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Engine:
    """peer: the driver of the engine. python: the interpreter that runs the driver."""

    peer: Peer
    python: Path


@dataclass(frozen=True, slots=True)
class Setup:
    """model: the file's path without `-MIX.gguf`. mix: the types of the file. cases: the cases of one turn."""

    model: Path
    mix: str
    threads: int
    cases: Sequence[Case]
    variables: dict[str, str]
    log_folder: Path

    @property
    def context(self) -> int:
        """The number of tokens that the longest case needs."""
        asked = [case.arguments for case in self.cases]
        longest = max(a.get("context", 0) + a.get("new_tokens", 0) + a.get("tokens", 0) for a in asked)
        return longest + ROOM_TOKENS

    @property
    def sequences(self) -> int:
        """The number of sequences that the widest case needs."""
        return max(case.arguments.get("batch", 1) for case in self.cases)


@dataclass(slots=True)
class Found:
    """The results of one engine. values: tokens a second by name of the case, one value for each turn. peak_bytes: the
    peak memory of the process, one value for each turn."""

    values: dict[str, list[float]] = field(default_factory=dict)
    limits: dict[str, list[Limits]] = field(default_factory=dict)
    peak_bytes: list[int] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    fault: str = ""


def take_turn(setup: Setup, engine: Engine, found: Found, meter: LimitMeter, note: Note) -> None:
    """Runs all cases of one turn of one engine, and adds the results to `found`. A fault ends the turn and is noted."""
    log = setup.log_folder / f"{engine.peer.name}.log"
    ours = engine.peer.name == OURS.name
    try:
        with Session(engine.peer, engine.python, setup.variables, log) as session:
            sizes = {"threads": setup.threads, "context": setup.context, "sequences": setup.sequences}
            load_s = session.ask("load", CASE_TIMEOUT_S, model=str(setup.model), weights=setup.mix, **sizes)
            found.start_s.append(load_s)
            session.ask("prefill", tokens=WARM_TOKENS)
            for case in setup.cases:
                before = meter.measure(rounds=1) if ours else None
                value = float(session.ask(case.command, CASE_TIMEOUT_S, **case.arguments))
                found.values.setdefault(case.name, []).append(value)
                if before is not None:
                    found.limits.setdefault(case.name, []).extend((before, meter.measure(rounds=1)))
                busy = os.getloadavg()[0]
                note(f"  {engine.peer.name} {case.name}: {value:,.2f} tok/s (load of the machine {busy:.1f})")
            found.peak_bytes.append(session.peak_bytes())
    except PeerFault as fault:
        found.fault = str(fault)
        note(f"  {engine.peer.name}: {fault}")


def table(setup: Setup, spec: Model, found: dict[str, Found]) -> list[dict[str, Any]]:
    """Returns one row for each case: medians, our ratio to the other engine, and our share of the limit measured around
    our turns. For experts, the limit counts the chosen ones only, as many as rows that choose evenly would use."""
    asked = {case.name: case for case in setup.cases}  # a turn may ask a case twice
    return [_row(case, spec, found) for case in asked.values()]


def _row(case: Case, spec: Model, found: dict[str, Found]) -> dict[str, Any]:
    medians = {
        name: statistics.median(each.values[case.name]) for name, each in found.items() if case.name in each.values
    }
    ours = medians.get(OURS.name)
    others = [value for name, value in medians.items() if name != OURS.name]
    row: dict[str, Any] = {"case": case.name, "tokens_per_s": medians}
    row["times_best_peer"] = ours / max(others) if ours and others else None
    limits = found[OURS.name].limits.get(case.name) if OURS.name in found else None
    if ours and limits:
        limit = bound(case, spec, None, KVKind.BF16, median_limits(limits))
        if limit is not None:
            row |= {"limit": limit.tokens_per_s, "limit_words": limit.words, "share": ours / limit.tokens_per_s}
    return row


def as_text(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the rows as a table in Markdown."""
    lines = ["| case | twostroke | llama.cpp | times | of the limit |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        ours, other = (row["tokens_per_s"].get(name) for name in (OURS.name, "llama_cpp"))
        times, share = row["times_best_peer"], row.get("share")
        cells = ["-" if value is None else f"{value:.2f}" for value in (ours, other, times)]
        limit = "-" if share is None else f"{share:.0%} ({row['limit_words']})"
        lines.append(f"| {row['case']} | {' | '.join(cells)} | {limit} |")
    return "\n".join(lines)
