"""Builds what a step and the KV cache need: the arrays of a step, the page pools from the memory plan, and the
scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twostroke.assembly.optional import objective_policy
from twostroke.assembly.settings.config import GAP_LIMITER
from twostroke.assembly.settings.resolver import Resolved
from twostroke.backends.cpu.rotary_rows import native_rows
from twostroke.cost.memory import KVPlan, MemoryNeeds
from twostroke.cost.what_if import WhatIf
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.limits.gap_limiter import GapRule
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.limits.plan_share import PredictedShare
from twostroke.engine.scheduler.policy import ArrivalPolicy, Policy, arrival_policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.speculate.guess_limiter import GUESS_ROWS
from twostroke.engine.speculate.guesser import Guesser
from twostroke.models.common.needs import EngineSizes, memory_needs
from twostroke.ops.device_memory import HOST, DeviceMemory
from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.model import Model
from twostroke.ops.program.program import Program
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.types.cache_pools import CachePools
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.weights.loaded import ModelWeights


def needs_of(whole: Model, parts: Sequence[Model], settings: Resolved) -> MemoryNeeds:
    """Returns the memory for a process that may hold any one of `parts`."""
    limits = (settings.steps.context, settings.steps.max_sequences, settings.steps.max_step_tokens)
    return memory_needs(whole, parts, EngineSizes(settings.model.weights, settings.cache.kind, *limits))


def own_pools(spec: Model, plan: KVPlan) -> CachePools:
    """Returns the pools of the target model's caches, without those of a draft model or draft layers."""
    return plan.pools.split(len(cache_groups(spec.program).pages))[0]


def draft_pools(spec: Model, plan: KVPlan) -> CachePools:
    """Returns the pools for the caches of a draft model or draft layers, without those of the target model."""
    return plan.pools.split(len(cache_groups(spec.program).pages))[1]


def longest_sequence(pools: CachePools, context_tokens: int) -> int:
    """Returns the number of positions that the pages can hold for one sequence. Pools of windows and states set no
    bound, so that only the context does."""
    return context_tokens if pools.most_pages is None else pools.most_pages * PAGE_TOKENS


def step_memory(
    program: Program,
    weights: ModelWeights,
    pools: CachePools,
    settings: Resolved,
    device: DeviceMemory = HOST,
    groups: tuple[int, ...] | None = None,
) -> StepMemory:
    """Returns the arrays that a program needs for its inputs, values and caches, for the largest step and these pools.
    device: where the arrays and the weights lie. groups: which page groups of the whole model the program has; None for
    all."""
    limits = (settings.steps.context, settings.steps.max_step_tokens, settings.steps.max_sequences)
    pages = pools.num_pages if groups is None else tuple(pools.num_pages[group] for group in groups)
    sizes = MemorySizes(pages, *limits, pools.state_slots, GUESS_ROWS, groups)
    arrays = (weights.matrices, weights.vectors, settings.cache.kind)
    return StepMemory(program, *arrays, sizes, device, native_rows(settings.cpu.cpu_level))


def cache_of(spec: Model, plan: KVPlan, on_fresh: Callable[[int], None], is_short: Callable[[], bool]) -> CacheManager:
    """Returns the manager of the model's caches. on_fresh: called for each page of the first group that is taken for
    the first time. is_short: tells whether other programs need memory."""
    pools, shares = own_pools(spec, plan), not spec.whole_prompts
    return CacheManager(pools, PAGE_TOKENS, on_fresh, shares=shares, is_short=is_short)


def scheduler_limits(settings: Resolved, spec: Model, plans: int = 1) -> SchedulerLimits:
    """Returns the limits of the scheduler, such as the most rows and sequences of a step. plans: the number of plans
    that are computed at a time."""
    return SchedulerLimits(
        settings.steps.max_step_tokens,
        settings.steps.max_sequences,
        max_draft_tokens=GUESS_ROWS,
        whole_prompts=spec.whole_prompts,
        plans_in_flight=plans,
        spare_tokens=1 if settings.device.early_steps == "on" else 0,
    )


def scheduler_of(
    cache: CacheManager, resolved: Resolved, spec: Model, costs: WhatIf, guesser: Guesser, plans: int
) -> Scheduler:
    """Makes the scheduler for these settings. plans: the number of plans that are computed at a time."""
    made = Scheduler(cache, scheduler_limits(resolved, spec, plans), _policy(costs, resolved, spec), guesser)
    made.under_way.share = PredictedShare(costs.now, plans)
    return made


def _policy(costs: WhatIf, resolved: Resolved, spec: Model) -> Policy:
    """Returns the scheduler's policy. Without objectives, it is the order of arrival."""
    guessed, asked = not costs.measured, resolved.steps.objectives
    if resolved.steps.step_limiter == GAP_LIMITER:
        return arrival_policy(costs.now, GapRule(), PAGE_TOKENS, guessed)
    if not asked.any:
        return ArrivalPolicy()
    limits = scheduler_limits(resolved, spec)
    return objective_policy.objective_policy(costs.now, asked, limits, PAGE_TOKENS, guessed=guessed)
