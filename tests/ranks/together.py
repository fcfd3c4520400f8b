"""A leader and its members as threads of one process: real frames, real exchange, real kernels."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.patience import PATIENCE_S
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.exchange import Exchange, memory_bytes
from twostroke.distributed.ranks.leader import LeadingExecutor, LeadingForward, RankGroup
from twostroke.distributed.ranks.line import RankLine
from twostroke.distributed.ranks.member import RankMember
from twostroke.distributed.ranks.processes import shared_memory
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.policy import Policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.ops.passes.division import Division
from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.runner import ModelRunner
from twostroke.types.cache_pools import window_pages
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import Packer, load_weights
from twostroke.weights.loaded import ModelWeights

LIMIT_S = PATIENCE_S


@dataclass(eq=False)
class Parts:
    """The parts of a model with their weights, loaded once."""

    division: Division
    model: Model
    parts: list[tuple[Model, ModelWeights]]

    @classmethod
    def load(cls, division: Division, model: Model, folder: Path, weights: str, packer: Packer) -> Parts:
        models = [division.part(model, rank) for rank in range(division.count)]
        with Checkpoint.open(folder) as checkpoint:
            loaded = [(part, load_weights(checkpoint, part, format_choice(weights), packer)) for part in models]
        return cls(division, model, loaded)


def meetings(level: str, count: int, width: int, over_sockets: bool) -> tuple[list[Exchange], list[object]]:
    """An exchange for each rank, and the objects that must live as long."""
    if over_sockets:
        pairs = {(low, high): socket.socketpair() for high in range(count) for low in range(high)}
        ends = [
            {each: pairs[min(rank, each), max(rank, each)][rank > each] for each in range(count) if each != rank}
            for rank in range(count)
        ]
        numbers = [[own[each].fileno() if each in own else -1 for each in range(count)] for own in ends]
        return [Exchange.over_sockets(level, numbers[rank], rank, LIMIT_S) for rank in range(count)], [pairs]
    descriptor = shared_memory(memory_bytes(level, count, width))
    made = [Exchange.in_memory(level, descriptor, rank, count, width, LIMIT_S) for rank in range(count)]
    os.close(descriptor)
    return made, []


@dataclass(eq=False)
class Running:
    """A group that runs. errors: the errors of members that failed."""

    core: EngineCore
    group: RankGroup
    exchanges: list[Exchange]
    ops: list[CpuOps]
    threads: list[threading.Thread]
    keeps: list[object]
    errors: list[BaseException] = field(default_factory=list)

    def close(self) -> None:
        self.group.close()
        for thread in self.threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        for made in (*self.ops, *self.exchanges):
            made.close()


def running(
    parts: Parts,
    kv: KVKind,
    level: str,
    pages: int,
    limits: SchedulerLimits,
    policy: Policy | None = None,
    over_sockets: bool = False,
) -> Running:
    """The same as `core` of tests/engine/test_exactness.py, over ranks. With stages, each has a plan in flight."""
    model, division = parts.model, parts.division
    groups = cache_groups(model.program)
    counts = tuple(
        max(pages, window_pages(each.window, 1, PAGE_TOKENS)) if each.window else pages for each in groups.pages
    )
    slots = limits.max_sequences + pages // 4
    cache = CacheManager(groups.pools(counts, slots, limits.max_step_tokens), PAGE_TOKENS)

    def memory(part: Model, weights: ModelWeights) -> StepMemory:
        own = counts if part.groups is None else tuple(counts[group] for group in part.groups)
        step = (limits.max_step_tokens, limits.max_sequences, slots, limits.max_draft_tokens)
        sizes = MemorySizes(own, model.max_positions, *step, part.groups)
        return StepMemory(part.program, weights.matrices, weights.vectors, kv, sizes)

    exchanges, keeps = meetings(level, division.count, division.exchange_width(model), over_sockets)
    backends = [CpuOps(level, 1) for _ in range(division.count)]
    for ops, exchange in zip(backends, exchanges, strict=True):
        ops.join(exchange)
    lines, threads, errors = [], [], []
    for rank in division.members:
        own, other = socket.socketpair()
        lines.append(RankLine(own))
        part, weights = parts.parts[rank]
        held = memory(part, weights)
        forward = backends[rank].compile(part.program, held)
        member = RankMember(RankLine(other), held, forward, exchanges[rank], lambda: None)
        threads.append(threading.Thread(target=_follow, args=(member.follow, other, errors), daemon=True))
    group = RankGroup(lines, division.members[0], lambda rank: "")
    group.start()
    group.meet_in(exchanges[division.leader])
    for thread in threads:
        thread.start()
    part, weights = parts.parts[division.leader]
    held = memory(part, weights)
    plain = backends[division.leader].compile(part.program, held)
    forward = LeadingForward(plain, group, head_needs_members=division.way == "tensor")
    executor = LeadingExecutor(ModelRunner(forward, held, lambda: 0.0), group)
    scheduler = Scheduler(cache, replace(limits, plans_in_flight=division.plans), policy)
    flight = PlansInFlight(division.plans, executor.begin) if division.plans > 1 else None
    core = EngineCore(scheduler, executor, flight=flight)
    return Running(core, group, exchanges, backends, threads, keeps, errors)


def _follow(follow: Callable[[], None], line: socket.socket, errors: list[BaseException]) -> None:
    try:
        follow()
    except Exception as error:
        errors.append(error)
    finally:
        line.close()


def all_pairs(counts: Sequence[int]) -> list[Division]:
    """Tensor and pipeline parallelism, each with each number of processes."""
    return [Division(way, count) for way in ("tensor", "pipeline") for count in counts]
