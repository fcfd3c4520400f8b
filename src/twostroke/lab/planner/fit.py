"""Tells whether a model fits on this machine, by the arithmetic of `plan`: memory, the longest context, a token's time.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.assembly.settings.env import read_machine
from twostroke.cost.memory import KEPT_FREE_SHARE
from twostroke.lab.planner.ask import Ask, make_ask
from twostroke.lab.planner.doctor.machine import ThisMachine
from twostroke.lab.planner.expect import Room, expect
from twostroke.lab.planner.model_config import PlannedModel
from twostroke.lab.planner.target import Target, guessed_target, here_target
from twostroke.ops.program.model import Model
from twostroke.types.errors import ConfigError, TwostrokeError
from twostroke.types.pooling import Task
from twostroke.types.spec.hardware_guess import guessed_cpu


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """How a model fits on this machine. needed_bytes: weights, buffers and one sequence of the context that is planned.
    usable_bytes: the memory that is available now, less what the engine leaves free. context: the tokens of the longest
    sequence that fits. tokens_per_s: the rate of one stream; None for a model that generates no text. measured: whether
    the rate follows from a measurement of this machine."""

    needed_bytes: int
    usable_bytes: int
    context: int
    max_context: int
    tokens_per_s: float | None
    measured: bool

    @property
    def fits(self) -> bool:
        """Whether one sequence fits."""
        return self.needed_bytes <= self.usable_bytes

    @property
    def words(self) -> str:
        """Returns the fit as one line for people."""
        need = f"needs {self.needed_bytes / 1e9:,.2f} GB"
        if not self.fits:
            return f"no: {need}, and {self.usable_bytes / 1e9:,.2f} GB of memory are free for it"
        context = f"context {self.context:,} of {self.max_context:,}"
        guessed = "" if self.measured else ", guessed"
        rate = "" if self.tokens_per_s is None else f", about {self.tokens_per_s:,.0f} tokens a second{guessed}"
        return f"yes: {need} of {self.usable_bytes / 1e9:,.2f} GB, {context}{rate}"


def this_machine() -> tuple[Target, bool]:
    """Returns this machine and whether it was measured: a target of its stored measurement and True, or a guessed
    target and False. Measures nothing. Raises BackendError where there are no kernels."""
    machine = read_machine()
    here = ThisMachine.read(machine=machine)
    kept = here.kept()
    if kept is not None:
        return here_target(kept, machine.available_bytes), True
    unmeasured = ConfigError("It was never measured.")
    return guessed_target(guessed_cpu(here.patient.threads, here.level), machine.available_bytes, unmeasured), False


def fit_of(found: PlannedModel) -> MemoryFit:
    """Returns the fit of a model whose description was read. Raises TwostrokeError where nothing can be planned."""
    target, measured = this_machine()
    spec = found.spec
    ask = make_ask(spec)
    expectation = expect(spec, ask, target)
    room = expectation.room
    usable = int(target.memory_bytes * (1 - KEPT_FREE_SHARE))
    rate = expectation.decode_one.rate_tokens_per_s if spec.task is Task.GENERATE else None
    context = _longest(spec, ask, room, usable)
    return MemoryFit(room.needed_bytes, usable, context, spec.longest_context, rate, measured)


def _longest(spec: Model, ask: Ask, room: Room, usable_bytes: int) -> int:
    """Returns the tokens of the longest sequence that fits next to weights and buffers."""
    if room.needed_bytes > usable_bytes:
        return 0
    left = usable_bytes - room.needed_bytes
    more = left // room.kv_bytes_per_token if room.kv_bytes_per_token else spec.longest_context
    return int(min(spec.longest_context, ask.context_tokens + more))


def fit_or_reason(found: PlannedModel) -> MemoryFit | str:
    """Returns the fit, or the reason why none can be computed."""
    try:
        return fit_of(found)
    except TwostrokeError as error:
        return str(error)
