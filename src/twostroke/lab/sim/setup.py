"""The setup of a simulated replica: its cost model, its KV pool, the limits of its scheduler."""

from __future__ import annotations

from collections.abc import Callable, Container
from collections.abc import Sequence as Positions
from dataclasses import dataclass, replace

from twostroke.cost.calibration import Calibration
from twostroke.cost.memory import plan_kv
from twostroke.cost.pipeline import StageTimes
from twostroke.cost.shape import SteadyCost
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.executor import Executor
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.limits.plan_share import PredictedShare
from twostroke.engine.scheduler.objectives.objective_policy import objective_policy
from twostroke.engine.scheduler.policy import Policy, arrival_policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.speculate.guess_limiter import GUESS_ROWS
from twostroke.lab.sim.clock import VirtualClock
from twostroke.lab.sim.disk import SimulatedDisk
from twostroke.lab.sim.guessing import simulated_guesser
from twostroke.lab.sim.images import EncodingExecutor, SimulatedImages
from twostroke.lab.sim.predicted import PredictedExecutor
from twostroke.lab.sim.staged import StagedExecutor
from twostroke.models.common.divided import ParallelPlan, cost_of, stage_costs
from twostroke.models.common.needs import EngineSizes, memory_needs
from twostroke.ops.program.model import Model
from twostroke.types.cache_pools import CachePools
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.types.spec.hardware import HardwareSpec

MAX_CONTEXT = 32_768


MakeScheduler = Callable[[CacheManager, SchedulerLimits, Policy | None], Scheduler]


@dataclass(frozen=True, slots=True)
class ReplicaSetup:
    """The setup of a replica: the objects and numbers from which production would build one. pools: the page pools of
    the cache; a plain number means one pool with so many pages, which a sequence keeps until it ends. kv_token_bytes:
    the bytes of one position in all layers.

    context_tokens: the tokens of the longest sequence; longer requests are refused as the engine refuses them.
    promised: the objectives that the scheduler tries to meet. Without any, requests are served in order of arrival.
    gap_rule: without objectives, this bounds how much a chunk of a prompt may stretch the gaps of streams; None for no
    bound. acceptance: the share of guessed tokens that are right; 0 where nothing is guessed. kv_tokens: the number of
    positions, of all running sequences together, for which the cache is planned. adapters: the number of adapters; each
    request uses one, and all are equally likely. stages: for a pipeline, the cost of each stage; each stage has a plan
    of its own in flight. images: the images with which each prompt begins. disk: the disk on which pages of prompts are
    kept; None without one. part_bytes: the bytes of a page in each group of layers, and of a state.
    """

    cost: SteadyCost
    pools: CachePools | int
    limits: SchedulerLimits
    context_tokens: int
    kv_token_bytes: int
    page_tokens: int = PAGE_TOKENS
    promised: LatencyObjectives = NO_OBJECTIVES
    gap_rule: GapRule | None = None
    acceptance: float = 0.0
    kv_tokens: int = 0
    adapters: int = 0
    stages: tuple[SteadyCost, ...] = ()
    images: SimulatedImages | None = None
    disk: SimulatedDisk | None = None
    part_bytes: tuple[tuple[int, ...], int] = ((), 0)

    def executor(
        self, clock: VirtualClock, beside: Callable[[], Positions[int]], known: Container[int] = ()
    ) -> tuple[Executor, PlansInFlight]:
        """Returns the executor, whose execution of a plan takes the predicted time, and the record of plans in flight.
        With pipeline stages, as many plans as stages may be in flight. beside: returns the positions of sequences that
        decode in the same step and are not in the plan. known: the keys of image tiles that another replica has
        encoded."""
        if not self.stages:
            own = PredictedExecutor(self.cost, clock, beside=beside)
            return own if self.images is None else EncodingExecutor(own, self.images, clock, known), PlansInFlight()
        staged = StagedExecutor(StageTimes(self.stages), clock)
        return staged, PlansInFlight(len(self.stages), staged.begin)

    def heart(self, make: MakeScheduler = Scheduler) -> tuple[CacheManager, Scheduler]:
        """Makes an empty cache and a new scheduler for it, with the same settings as in a real engine."""
        cache = CacheManager(self.pools, self.page_tokens)
        if self.acceptance:
            limits = replace(self.limits, max_draft_tokens=GUESS_ROWS)
            scheduler = Scheduler(cache, limits, self._policy(), simulated_guesser(self.cost, self.acceptance))
        else:
            scheduler = make(cache, self.limits, self._policy())
        scheduler.images.cost = None if self.images is None else self.images.cost
        scheduler.under_way.share = PredictedShare(self.cost, self.limits.plans_in_flight)
        return cache, scheduler

    def _policy(self) -> Policy | None:
        if self.promised.any:
            return objective_policy(self.cost, self.promised, self.limits, self.page_tokens)
        if self.gap_rule is None:
            return None
        return arrival_policy(self.cost, self.gap_rule, self.page_tokens)

    def can_serve(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Returns whether a request fits into the context and the pool. The scheduler needs room for a token after
        every prompt."""
        whole = prompt_tokens + output_tokens
        return whole <= self.context_tokens and max(whole, prompt_tokens + 1) <= self._pool_tokens

    @property
    def most_tokens(self) -> int:
        """The most tokens of one request, prompt and output together."""
        return min(self.context_tokens, self._pool_tokens)

    @property
    def _pool_tokens(self) -> int:
        """The length in tokens of the longest sequence that the pages hold; windows and states set no limit."""
        pages = self.pools if isinstance(self.pools, int) else self.pools.most_pages
        return self.context_tokens + 1 if pages is None else pages * self.page_tokens


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that an operator may choose. context_tokens, kv_bytes: None takes the engine's own choice.

    gap_rule: bounds how much a chunk of a prompt may stretch the gaps of streams; None where an operator has asked for
    max_step_tokens.
    """

    max_step_tokens: int = 512
    max_sequences: int = 64
    context_tokens: int | None = None
    kv_bytes: int | None = None
    gap_rule: GapRule | None = None


def replica_setup(
    spec: Model,
    weights: str,
    kv_kind: KVKind,
    machine: HardwareSpec | Calibration,
    memory_bytes: int,
    sizes: Sizes,
    divided: ParallelPlan | None = None,
) -> ReplicaSetup:
    """Sizes a replica as the engine sizes itself. machine, memory_bytes: the hardware and memory of each process where
    the model is divided.

    Raises OutOfMemory with the computed sizes, ConfigError for formats that the machine cannot run.
    """
    context = min(sizes.context_tokens or min(MAX_CONTEXT, spec.max_positions), spec.longest_context)
    parts = [spec] if divided is None else divided.parts(spec)
    needs = memory_needs(
        spec, parts, EngineSizes(weights, kv_kind, context, sizes.max_sequences, sizes.max_step_tokens)
    )
    plan = plan_kv(needs, memory_bytes, sizes.kv_bytes)
    stages = () if divided is None else stage_costs(spec, weights, kv_kind, machine, divided)
    return ReplicaSetup(
        gap_rule=sizes.gap_rule,
        cost=cost_of(spec, weights, kv_kind, machine, divided),
        pools=plan.pools,
        limits=SchedulerLimits(sizes.max_step_tokens, sizes.max_sequences, plans_in_flight=max(1, len(stages))),
        context_tokens=context,
        kv_token_bytes=spec.kv_bytes_per_token(kv_kind),
        kv_tokens=plan.tokens,
        stages=stages,
        part_bytes=(tuple(group.page_bytes for group in needs.caches.groups), needs.caches.state_bytes),
    )
