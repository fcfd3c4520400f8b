"""The whole examination of a machine: its limits, its kernels and its host become one Calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from twostroke.assembly.settings.env import Moment, others_share, read_moment
from twostroke.backends.cpu import CpuOps, best_level
from twostroke.backends.cpu.limits import LimitMeter, Limits
from twostroke.cost.calibration import DISTURBED_SHARE, Calibration, HostRates
from twostroke.lab.planner.doctor.meaning import contradictions
from twostroke.lab.planner.doctor.measure_exchange import measure_exchange
from twostroke.lab.planner.doctor.measure_host import measure_host
from twostroke.lab.planner.doctor.measure_ops import COLD_BYTES, FEW_ROWS, LAYER_OPS, ROUNDS, ROWS, WARM_BYTES, OpTimer
from twostroke.lab.planner.doctor.stopwatch import LEAST_S, Stopwatch
from twostroke.lab.planner.doctor.synthetic import random_memory
from twostroke.ops.operands import U8Array
from twostroke.ops.quant.formats import FORMATS
from twostroke.types.errors import OutOfMemory, TwostrokeError
from twostroke.types.spec.formats import KVKind

MEMORY_SHARE = 0.3
"""The largest share of the available memory that measuring may take."""

LEAST_RING_SHARE = 0.25
"""Weights are timed on Effort.ring_bytes of them, which are read in turn. Where memory is short, fewer bytes are read,
but at least this share. A cache could hold all of a smaller set."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured. ring_bytes: the bytes of weights that are read in turn; more than any cache that a few
    cores share. rows: the numbers of rows to time with integer weights.

    few_rows: the numbers of rows to time with float weights. least_s: the least seconds of one timing.
    """

    ring_bytes: int = 1100 << 20
    rounds: int = ROUNDS
    rows: tuple[int, ...] = ROWS
    few_rows: tuple[int, ...] = FEW_ROWS
    least_s: float = LEAST_S


FULL = Effort()

TRIES = 3
"""How often a part is measured at most. It is measured again where other programs took part of the cores."""

AGAIN_S, MOST_S = 15.0, 45.0
ON_THE_WAY_S = 20.0
"""MOST_S of a measurement that nobody asked for: `plan` and `simulate` have a guess in its place."""

Found = TypeVar("Found")
Note = Callable[[int, int, str], None]
"""Called when a part of the measurement begins, with (parts done, all parts, its name)."""


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """The machine that is measured. fingerprint: identifies processor, threads and version. title: the processor's
    name."""

    fingerprint: str
    title: str
    threads: int
    available_bytes: int


class MachineBusy(TwostrokeError):
    """Raised where other programs take too much of this machine for a measurement."""


def machine_busy(share: float) -> MachineBusy:
    """Returns the error for a machine on which other programs used the share `share` of the cores."""
    return MachineBusy(
        "The machine is busy: figures not kept.",
        why=f"Other programs took {share:.0%} of its cores while it was measured.",
        fix="Measure again when they leave it alone: twostroke doctor --fresh",
    )


class Quiet:
    """Repeats measurements that other programs disturbed, up to TRIES times each, and keeps the least disturbed result.

    clock: returns seconds; None sets no limits of time. AGAIN_S seconds after the start, nothing is repeated any more.
    most_s: a disturbed machine is given up this many seconds after the start (MachineBusy).
    """

    def __init__(
        self,
        moment: Callable[[], Moment | None],
        tell: Callable[[str], None],
        clock: Callable[[], float] | None = None,
        tell_again: Callable[[str], None] = lambda what: None,
        most_s: float = MOST_S,
    ) -> None:
        self._moment, self._tell, self._tell_again = moment, tell, tell_again
        self._clock = clock or (lambda: 0.0)
        self._began_s, self._most_s = self._clock(), most_s
        self.others_share = 0.0

    @property
    def _lasts_s(self) -> float:
        return self._clock() - self._began_s

    def measure(self, what: str, work: Callable[[], Found]) -> Found:
        """Runs `work` up to TRIES times, until no other program disturbs it, and returns the least disturbed result.
        `others_share` then holds the largest share of the cores that other programs used during any result returned so
        far. Raises MachineBusy."""
        if self._lasts_s > self._most_s and self.others_share > DISTURBED_SHARE:
            raise machine_busy(self.others_share)
        self._tell(what)
        tried: list[tuple[float, Found]] = []
        while len(tried) < TRIES and not (tried and tried[-1][0] <= DISTURBED_SHARE):
            if tried and self._lasts_s > AGAIN_S:
                break
            if tried:
                self._tell_again(f"{what}, again: others took {tried[-1][0]:.0%} of the cores")
            before = self._moment()
            found = work()
            tried.append((others_share(before, self._moment()), found))
        share, best = min(tried, key=lambda each: each[0])
        self.others_share = max(self.others_share, share)
        return best


def examine(
    patient: MeasuredMachine,
    clock: Callable[[], float],
    note: Note,
    effort: Effort = FULL,
    moment: Callable[[], Moment | None] = read_moment,
    most_s: float = MOST_S,
) -> Calibration:
    """Measures a machine and returns its calibration. That takes some ten seconds, and about a minute at most where
    other programs disturb.
    most_s: see Quiet.

    Raises OutOfMemory, BackendError, MachineBusy.
    """
    room = int(min(effort.ring_bytes, patient.available_bytes * MEMORY_SHARE))
    least = LEAST_RING_SHARE * effort.ring_bytes
    if room < least:
        needed, available = least / MEMORY_SHARE / 1e9, patient.available_bytes / 1e9
        raise OutOfMemory(
            f"Measuring takes {needed:.1f} GB; {available:.1f} GB are available.",
            why=f"At most {MEMORY_SHARE:.0%} of the available memory is taken.",
            fix="Close other programs, or give the container more memory.",
        )
    steps = iter(range(1, 100))
    timed_formats = {name: chosen for name, chosen in FORMATS.items() if chosen.kind.arithmetic is chosen.kind}
    total = 8 + len(timed_formats) + len(KVKind)
    at = [0]

    def tell(what: str) -> None:
        at[0] = next(steps)
        note(at[0], total, what)

    quiet = Quiet(moment, tell, clock, lambda what: note(at[0], total, what), most_s)
    memory = quiet.measure("memory to read", lambda: random_memory(room))
    quiet.others_share = 0.0  # no figure of this step is kept
    limits = quiet.measure("limits: reading, float32 and int8 products", lambda: _limits(patient, clock, memory))
    ops = CpuOps(best_level(), patient.threads)
    try:
        timer = OpTimer(ops, memory, Stopwatch(clock, effort.least_s), effort.rounds)
        layer_s = quiet.measure("starting ops", timer.layer_s)
        start_s = layer_s / LAYER_OPS
        other = quiet.measure("norms, rope and KV writes", lambda: timer.other(start_s))
        linear, attention = {}, {}
        for name, chosen in timed_formats.items():
            rows = effort.rows if chosen.group else effort.few_rows
            work = partial(timer.linear, chosen, start_s, rows)
            linear[chosen.kind] = quiet.measure(f"products with {name} weights", work)
        for kind in KVKind:
            attention[kind] = quiet.measure(
                f"attention over {kind.name.lower()} K and V", partial(timer.attention, kind)
            )
    finally:
        ops.close()
    timed = Calibration(
        fingerprint=patient.fingerprint,
        title=patient.title,
        threads=patient.threads,
        memory_bytes=patient.available_bytes,
        others_share=0.0,
        read_bytes_per_s=limits.read_bytes_per_s,
        f32_flops_per_s=limits.f32_flops_per_s,
        int8_ops_per_s=limits.int8_ops_per_s,
        warm_bytes=WARM_BYTES,
        cold_bytes=COLD_BYTES,
        linear=linear,
        attention=attention,
        other=other,
        layer_s=layer_s,
        host=HostRates(0.0, 0.0, 0.0),
    )
    kernels = quiet.measure("limits, again", lambda: with_limits_again(timed, lambda: _limits(patient, clock, memory)))
    host = quiet.measure("schedule, sample and commit", lambda: measure_host(patient.threads, clock, kernels))
    exchange = quiet.measure("ranks that meet", lambda: measure_exchange(best_level(), clock))
    note(total, total, "done")
    return replace(kernels, host=host, exchange=exchange, others_share=quiet.others_share)


def with_limits_again(timed: Calibration, measure: Callable[[], Limits]) -> Calibration:
    """Measures the machine's limits once more and keeps the higher of each. The measurement is repeated up to TRIES
    times, as long as kernels were faster than these limits allow.

    A machine whose speed changes may have been slow when its limits were measured and fast when its kernels were.
    """
    for _ in range(TRIES):
        again = measure()
        timed = replace(
            timed,
            read_bytes_per_s=max(timed.read_bytes_per_s, again.read_bytes_per_s),
            f32_flops_per_s=max(timed.f32_flops_per_s, again.f32_flops_per_s),
            int8_ops_per_s=max(timed.int8_ops_per_s, again.int8_ops_per_s),
        )
        if not contradictions(timed):
            break
    return timed


def _limits(patient: MeasuredMachine, clock: Callable[[], float], memory: U8Array) -> Limits:
    meter = LimitMeter(patient.threads, clock, memory)
    try:
        return meter.measure()
    finally:
        meter.close()
