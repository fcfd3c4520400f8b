"""What one simulated replica is: its cost model, its KV pool, the limits of its scheduler.

Knows: Model, memory arithmetic, a machine in numbers.
Must not know: workloads, other replicas, where a calibration is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.cache.manager import CacheManager
from twostroke.cost.calibration import Calibration
from twostroke.cost.memory import MemoryNeeds, plan_kv
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import SteadyCost
from twostroke.models.common.work import work_of
from twostroke.program.model import Model
from twostroke.program.place import place
from twostroke.quant.formats import format_choice
from twostroke.scheduler.gap_limiter import GapRule
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.scheduler.objective_policy import objective_policy
from twostroke.scheduler.policy import Policy, arrival_policy
from twostroke.scheduler.scheduler import Scheduler
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.spec.hardware import HardwareSpec
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives

MAX_CONTEXT = 32_768


@dataclass(frozen=True, slots=True)
class ReplicaSetup:
    """The same objects as production's, in numbers. kv_token_bytes: of one position in all layers.

    context_tokens: the longest sequence; longer requests are refused as the engine refuses them. promised: objectives
    that the scheduler keeps; without any it goes by arrival, with prompts in chunks that keep gap_rule (None: each step
    is filled).
    """

    cost: SteadyCost
    num_pages: int
    limits: SchedulerLimits
    context_tokens: int
    kv_token_bytes: int
    page_tokens: int = PAGE_TOKENS
    promised: LatencyObjectives = NO_OBJECTIVES
    gap_rule: GapRule | None = None

    def heart(self) -> tuple[CacheManager, Scheduler]:
        """An empty pool and a fresh scheduler over it, as `assemble` builds them."""
        cache = CacheManager(self.num_pages, self.page_tokens)
        if self.promised.any:
            return cache, Scheduler(cache, self.limits, self._objective_policy())
        if self.gap_rule is None:
            return cache, Scheduler(cache, self.limits)
        return cache, Scheduler(cache, self.limits, arrival_policy(self.cost, self.gap_rule, self.page_tokens))

    def _objective_policy(self) -> Policy:
        return objective_policy(self.cost, self.promised, self.limits, self.page_tokens)

    def can_serve(self, prompt_tokens: int, output_tokens: int) -> bool:
        """False for a request that is too long. The scheduler wants room for a token behind every prompt."""
        whole = prompt_tokens + output_tokens
        pool_tokens = self.num_pages * self.page_tokens
        return whole <= self.context_tokens and max(whole, prompt_tokens + 1) <= pool_tokens

    @property
    def most_tokens(self) -> int:
        """Of one request, prompt and output together."""
        return min(self.context_tokens, self.num_pages * self.page_tokens)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an operator may choose. context_tokens, kv_bytes: None takes what the engine would.

    gap_rule: of the engine's default; None where an operator has asked for max_step_tokens.
    """

    max_step_tokens: int = 512
    max_sequences: int = 64
    context_tokens: int | None = None
    kv_bytes: int | None = None
    gap_rule: GapRule | None = None


def replica_setup(
    spec: Model, weights: str, kv_kind: KVKind, machine: HardwareSpec | Calibration, memory_bytes: int, sizes: Sizes
) -> ReplicaSetup:
    """Size a replica as the engine sizes itself. Raises OutOfMemory with the arithmetic, ConfigError for formats."""
    context = min(sizes.context_tokens or min(MAX_CONTEXT, spec.max_positions), spec.longest_context)
    kv_token_bytes = spec.kv_bytes_per_token(kv_kind)
    needs = MemoryNeeds(
        weight_bytes=spec.weight_bytes(format_choice(weights)),
        buffer_bytes=place(spec.program, sizes.max_step_tokens, sizes.max_sequences).num_bytes,
        kv_token_bytes=kv_token_bytes,
        context_tokens=context,
        useful_tokens=context * sizes.max_sequences,
    )
    plan = plan_kv(needs, memory_bytes, sizes.kv_bytes)
    return ReplicaSetup(
        gap_rule=sizes.gap_rule,
        cost=step_cost(work_of(spec, weights, kv_kind), machine),
        num_pages=plan.num_pages,
        limits=SchedulerLimits(sizes.max_step_tokens, sizes.max_sequences),
        context_tokens=context,
        kv_token_bytes=kv_token_bytes,
    )
