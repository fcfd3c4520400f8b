"""The cost of a model's steps where several equal processes, connected by a link, hold the model together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from twostroke.cost.calibration import Calibration
from twostroke.cost.exchange import DividedCost, LinkRates
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import SteadyCost
from twostroke.models.common.work import work_of
from twostroke.ops.passes.division import Division
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """The division of a model among processes, and the link between them. Each process has a machine of its own, or its
    share of one."""

    division: Division
    link: LinkRates

    def parts(self, spec: Model) -> list[Model]:
        """Returns the parts of the model whose memory is planned: each stage's part, or for ranks the leader's part
        alone."""
        return self.division.parts(spec)


def stage_costs(
    spec: Model, weights: str, kv_kind: KVKind, machine: HardwareSpec | Calibration, divided: ParallelPlan
) -> tuple[SteadyCost, ...]:
    """Returns how long each stage of a pipeline takes for its part of a step, from the first to the last. Returns an
    empty tuple for ranks, which compute at the same time.

    Raises ConfigError.
    """
    if divided.division.plans == 1:
        return ()
    formats, exchange_of, calls = format_choice(weights), divided.division.exchange_of, len(spec.program.calls)
    found = []
    for part in divided.parts(spec):
        own = replace(part, num_layers=round(spec.num_layers * len(part.program.calls) / calls))
        cost = step_cost(work_of(own, weights, kv_kind), machine)
        found.append(DividedCost(cost, exchange_of(part, formats), divided.link))
    return tuple(found)


def cost_of(
    spec: Model, weights: str, kv_kind: KVKind, machine: HardwareSpec | Calibration, divided: ParallelPlan | None
) -> SteadyCost:
    """Returns the step cost of the whole model on one `machine`, or split over `divided` processes, each on a machine
    of this kind.

    Raises ConfigError.
    """
    if divided is None:
        return step_cost(work_of(spec, weights, kv_kind), machine)
    division = divided.division
    inner = step_cost(work_of(division.counted(spec), weights, kv_kind), machine)
    return DividedCost(inner, division.exchange(spec, format_choice(weights)), divided.link)
