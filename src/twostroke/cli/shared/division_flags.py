"""Flags that divide a planned or simulated model among processes, and that name the hardware of each process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from twostroke.cli.doctor import step_notes
from twostroke.cli.shared.flag_fields import flag
from twostroke.cli.shared.readings import COUNT, bytes_per_s, duration_s, reading
from twostroke.types.errors import ConfigError, Contradiction, OutOfMemory

if TYPE_CHECKING:
    from twostroke.cost.exchange import LinkRates
    from twostroke.lab.planner.doctor.machine import ThisMachine
    from twostroke.lab.planner.target import Target
    from twostroke.models.common.divided import ParallelPlan
    from twostroke.ops.program.model import Model

THIS = ("this", "here")

@dataclass(frozen=True)
class DivisionFlags:
    """The flags of how many ranks or stages hold the model, and how fast they exchange."""

    tensor_parallel: int = flag(
        "--tensor-parallel",
        metavar="COUNT",
        callback=COUNT,
        default="1",
        help="Ranks that share each layer, each on such a machine; of this machine, each with its share [default: 1].",
    )
    pipeline_parallel: int = flag(
        "--pipeline-parallel",
        metavar="COUNT",
        callback=COUNT,
        default="1",
        help="Stages that follow one another, likewise [default: 1].",
    )
    exchange_time: float | None = flag(
        "--exchange-time",
        metavar="TIME",
        callback=reading(duration_s),
        default=None,
        help="Time of one meeting of ranks or stages, such as 40us [default: as `twostroke doctor` measured it here].",
    )
    exchange_rate: float | None = flag(
        "--exchange-rate",
        metavar="RATE",
        callback=reading(bytes_per_s),
        default=None,
        help="Rate at which they exchange, such as 10Gbit/s [default: as `twostroke doctor` measured it here].",
    )


def read_hardware(name: str | None, processes: int = 1) -> Target:
    """Returns an entry of the catalogue, or one process's share of this machine. This machine is described by the
    doctor's measurement, which is made now where there is none. It is guessed where it cannot be measured now."""
    from twostroke.lab.planner.target import named_target

    if name is not None and name.strip().lower() not in THIS:
        return named_target(name)
    from twostroke.assembly.settings.env import read_machine
    from twostroke.lab.planner.doctor.machine import ThisMachine
    from twostroke.lab.planner.memory_nodes import nodes_of

    machine = read_machine()
    here = ThisMachine.read(None if processes == 1 else max(1, machine.share(processes).cores))
    target = _this_machine(here, machine.available_bytes // processes)
    placing = machine.placing if processes == 1 else machine.share(processes).placing
    said = f"{placing.threads} threads: {placing.reason}"
    target = replace(target, assumptions=(*target.assumptions, said), nodes=nodes_of(machine, here.level))
    return target if processes == 1 else replace(target, title=f"1/{processes} of {target.title}")


def _this_machine(here: ThisMachine, available_bytes: int) -> Target:
    """Returns this machine by its measurement, which is made now where none is kept. Returns a guess where other
    programs or too little memory prevent the measurement. A plan needs an answer, and standard error names the basis of
    the answer."""
    from twostroke.lab.planner.doctor.examine import MachineBusy
    from twostroke.lab.planner.target import guessed_target, here_target
    from twostroke.types.spec.hardware_guess import guessed_cpu

    try:
        with step_notes() as note:
            return here_target(here.kept_or_measured(note), available_bytes)
    except (MachineBusy, Contradiction, OutOfMemory) as why:
        target = guessed_target(guessed_cpu(here.patient.threads, here.level), available_bytes, why)
        click.echo(f"warning: {target.assumptions[0]}", err=True)
        return target


def require_hardware(name: str | None) -> None:
    """Raises ConfigError for a name that is not in the catalogue. Nothing is measured."""
    from twostroke.lab.planner.target import named_target

    if name is not None and name.strip().lower() not in THIS:
        named_target(name)


def divided_target(asked: DivisionFlags, hardware: str | None, spec: Model) -> tuple[Target, ParallelPlan | None]:
    """Returns the machine on which each process runs, and the division of `spec`; None for one process.

    Raises ConfigError. A count by which the model cannot be divided is refused before this machine is measured.
    """
    from twostroke.models.common.divided import ParallelPlan
    from twostroke.ops.passes.division import Division

    division = Division.asked(asked.tensor_parallel, asked.pipeline_parallel)
    if division is None:
        for option, rate in (("--exchange-time", asked.exchange_time), ("--exchange-rate", asked.exchange_rate)):
            if rate is not None:
                raise ConfigError(
                    f"{option} belongs to --tensor-parallel or --pipeline-parallel.",
                    why="One process exchanges nothing.",
                    fix="Ask for ranks or stages, or leave it out.",
                )
        return read_hardware(hardware), None
    division.own(spec)
    target = read_hardware(hardware, division.count)
    return target, ParallelPlan(division, _link(asked.exchange_time, asked.exchange_rate, target))


def _link(meeting_s: float | None, rate: float | None, target: Target) -> LinkRates:
    from twostroke.cost.calibration import Calibration
    from twostroke.cost.exchange import LinkRates

    known = target.link
    if known is None and (meeting_s is None or rate is None):
        here = isinstance(target.machine, Calibration)
        raise ConfigError(
            "How fast ranks or stages exchange is not known.",
            why="The kept measurement of this machine lacks it." if here else "The catalogue has no figure for it.",
            fix="Give --exchange-time 40us and --exchange-rate 10Gbit/s"
            + (", or run `twostroke doctor --fresh`." if here else ", as they are between your machines."),
        )
    said = [f"{name} as asked for" for name, each in (("time", meeting_s), ("rate", rate)) if each is not None]
    if known is not None and len(said) < 2:
        rest = " and ".join(name for name, each in (("time", meeting_s), ("rate", rate)) if each is None)
        said.append(f"{rest} {known.source}")
        meeting_s, rate = meeting_s or known.meeting_s, rate or known.bytes_per_s
    if meeting_s is None or rate is None:
        raise RuntimeError("a rate is missing")
    return LinkRates(meeting_s, rate, "; ".join(said))
