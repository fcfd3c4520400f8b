"""Beam searches on real tiny models: an engine core over any pool, and the answers that it gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.families.stored import write_checkpoint
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.packer import NativePacker
from twostroke.engine.beams.book import BeamBook, TextOf
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.folder import read_folder
from twostroke.runner.runner import ModelRunner
from twostroke.types.cache_pools import window_pages
from twostroke.types.event import FinishedEvent, TokenEvent
from twostroke.types.request import FinishReason, Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights


@dataclass
class Loaded:
    """A tiny model of a family of tests/models/families."""

    model: Model
    weights: ModelWeights
    family: str


class EverySecond:
    """A TokenMask that allows tokens of the other parity after each token, and all tokens after every fifth one. It
    raises an error where it is moved by a token that is not in its sequence's output."""

    mask_s = 0.0

    def __init__(self) -> None:
        self.taken: list[int] = []

    @property
    def num_tokens(self) -> int:
        return len(self.taken)

    def feed(self, token_id: int) -> None:
        assert self._allows(token_id), "a token that the mask forbids"
        self.taken.append(token_id)

    def rewind(self, num_tokens: int) -> None:
        assert 0 <= num_tokens <= len(self.taken)
        del self.taken[num_tokens:]

    def bits(self) -> bytes:
        allowed = [self._allows(token_id) for token_id in range(256)]
        return np.packbits(allowed, bitorder="little").tobytes()

    def _allows(self, token_id: int) -> bool:
        return len(self.taken) % 5 == 0 or (token_id + self.taken[-1]) % 2 == 1


@dataclass
class Found:
    """One answer. tokens: its tokens; where an end token ended it, this token is the last."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    reason: FinishReason | None = None
    score: float | None = None


def load(family: str, folder: Path) -> Loaded:
    """Loads the model in float32."""
    write_checkpoint(family, folder)
    model = read_folder(folder)
    packer = NativePacker(None, 1)
    try:
        with Checkpoint.open(folder) as checkpoint:
            return Loaded(model, load_weights(checkpoint, model, format_choice("f32"), packer), family)
    finally:
        packer.close()


@contextmanager
def machine(
    loaded: Loaded, pages: int, limits: SchedulerLimits, kv: KVKind = KVKind.F32, text_of: TextOf = lambda request: None
) -> Iterator[tuple[EngineCore, CacheManager]]:
    """An engine core over pools of this size. A window's pool is never smaller than its least size."""
    groups = cache_groups(loaded.model.program)
    counts = tuple(
        max(pages, window_pages(each.window, 1, PAGE_TOKENS)) if each.window else pages for each in groups.pages
    )
    slots = limits.max_sequences
    cache = CacheManager(groups.pools(counts, slots, limits.max_step_tokens), PAGE_TOKENS)
    sizes = MemorySizes(counts, 256, limits.max_step_tokens, limits.max_sequences, slots, limits.max_draft_tokens)
    memory = StepMemory(loaded.model.program, loaded.weights.matrices, loaded.weights.vectors, kv, sizes)
    ops = CpuOps(None, 1)
    try:
        runner = ModelRunner(ops.compile(loaded.model.program, memory), memory, lambda: 0.0)
        yield EngineCore(BeamBook(Scheduler(cache, limits), text_of), runner), cache
    finally:
        ops.close()


def members(
    name: str, prompt: tuple[int, ...], params: SamplingParams, size: int, ends: frozenset[int]
) -> list[Request]:
    """The requests of one group, as a session makes them."""
    made = [Request(f"{name}/{i}", name, prompt, params, i, size, ends, 0.0) for i in range(params.num_answers)]
    return [made[0], *(replace(each, params=replace(params, prompt_logprobs=None)) for each in made[1:])]


def masked(group: list[Request]) -> list[Request]:
    """The same requests with new masks, where the requests have masks."""
    return [replace(each, mask=EverySecond() if each.mask is not None else None) for each in group]


def drive(core: EngineCore, cache: CacheManager, arrivals: list[tuple[int, list[Request]]]) -> dict[str, Found]:
    """Runs until all have ended. Each group arrives before its step. The caches are checked after each step."""
    found = {request.request_id: Found() for _, group in arrivals for request in group}
    waiting = sorted(arrivals, key=lambda pair: pair[0])
    for index in range(60_000):
        while waiting and waiting[0][0] <= index:
            for request in waiting.pop(0)[1]:
                core.scheduler.add(request)  # type: ignore[attr-defined]
        step = core.step(lambda: 0.0)
        assert step is not None or waiting, "the engine stands still"
        cache.check()
        for event in step.events if step else ():
            made = found[event.request_id]
            if isinstance(event, TokenEvent):
                made.tokens.append(event.token_id)
                made.logprobs.append(event.logprob)
            elif isinstance(event, FinishedEvent):
                assert made.reason is None
                made.reason, made.score = event.reason, event.score
                if event.stopped_by is not None:
                    made.tokens.append(event.stopped_by)
                    made.logprobs.append(event.end_logprob)
        if not waiting and not core.scheduler.has_work:
            break
    gauges = core.scheduler.gauges()
    assert (gauges.running, gauges.waiting, gauges.pages_used, gauges.waste_tokens) == (0, 0, 0, 0)
    assert all(each.reason is not None for each in found.values())
    return found
