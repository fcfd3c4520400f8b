"""Checks the exactness law on a device. Requests with one seed each must give the same tokens and log probabilities
together and alone, in chunks and whole, and after preemption. The CPU's level with the same bits must give them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps, NativePacker
from twostroke.backends.cuda.device import CudaDevice
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.core import EngineCore
from twostroke.engine.executor import Executor
from twostroke.engine.scheduler.limits.limits import SchedulerLimits
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.ops.attention.token_weights import weigh
from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.device.early_runner import EarlyRunner
from twostroke.runner.device.early_steps import steady
from twostroke.runner.device.sampler import DeviceSampler
from twostroke.runner.folder import read_folder
from twostroke.runner.place_weights import placed
from twostroke.runner.runner import ModelRunner
from twostroke.runner.samplers import HostSampler, StepSampler
from twostroke.types.event import FinishedEvent, PromptEvent
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights

FORMATS = (("int8", KVKind.INT8), ("int4", KVKind.BF16), ("bf16", KVKind.BF16))
TOKENS, CONTEXT, PLENTY = 12, 160, 64
ROW = dict[str, Any]
SCHEDULES = (
    ("chunks of 16, few pages", 16, 14, False),
    ("4 at once", 4, PLENTY, False),
    ("steps begun early", 64, PLENTY, True),
    ("steps begun early, few pages", 16, 16, True),
)
"""The name, the most rows of a step, the number of pages, and whether the device begins steps early. Where there are
fewer pages than all requests need together, some requests are preempted. Steps begun early leave out the requests that
need the token before on the host."""


def requests() -> list[Request]:
    """Requests of several lengths and ways to sample, some of which share a prefix."""
    shared = [7 + (31 * place) % 400 for place in range(90)]
    prompts = (shared[:40], shared, shared[:33] + [5, 6], [9, 8, 7], shared[10:70], shared[:64])
    ways = (
        {"temperature": 0.0, "logprobs": 3},
        {"temperature": 0.9, "logprobs": 0},
        {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.2},
        {"temperature": 1.3, "top_k": 20, "logprobs": 5},
        {"temperature": 1.0, "min_p": 0.02, "frequency_penalty": 0.5},
        {"temperature": 0.8, "logit_bias": {11: 3.0}, "logprobs": 1},
    )
    return [
        Request(str(i), str(i), tuple(prompt), SamplingParams(**way), 100 + i, TOKENS, frozenset(), 0.0)  # type: ignore[arg-type]
        for i, (prompt, way) in enumerate(zip(prompts, ways, strict=True))
    ]


def engine(
    model: Model, weights: ModelWeights, kv: KVKind, on: CpuOps | CudaDevice, rows: int, pages: int, early: bool = False
) -> EngineCore:
    """Returns a new engine. on: the ops or the device that run the model. early: whether a device begins steps early.
    """
    limits = SchedulerLimits(rows, min(rows, 8), spare_tokens=int(early))
    groups = cache_groups(model.program)
    counts = tuple(pages for _ in groups.pages)
    sizes = MemorySizes(counts, CONTEXT, rows, limits.max_sequences)
    cache = CacheManager(groups.pools(counts, 0, rows), PAGE_TOKENS)
    sampler: StepSampler
    if isinstance(on, CudaDevice):
        there = placed(weights, on)
        memory = StepMemory(model.program, there.matrices, there.vectors, kv, sizes, on)
        forward: Any = on.compile(model.program, memory)
        sampler = DeviceSampler(forward, model.vocab_size, weigh)
    else:
        memory = StepMemory(model.program, weights.matrices, weights.vectors, kv, sizes)
        forward = on.compile(model.program, memory)
        sampler = HostSampler(forward, on.weigh)
    plain = ModelRunner(forward, memory, lambda: 0.0, sampler=sampler)
    runner: Executor = plain
    if early and isinstance(sampler, DeviceSampler):
        runner = EarlyRunner(plain, forward, sampler, memory, lambda: 0.0)
    return EngineCore(Scheduler(cache, limits), runner)


def outputs(core: EngineCore, asked: list[Request]) -> dict[str, list[Any]]:
    """Runs all requests to their ends. Returns the events of each request, by its id."""
    found: dict[str, list[Any]] = {request.request_id: [] for request in asked}
    for request in asked:
        core.scheduler.add(request)  # type: ignore[attr-defined]
    while core.scheduler.has_work:
        step = core.step(lambda: 0.0)
        for event in step.events if step else ():
            if isinstance(event, FinishedEvent):
                found[event.request_id].append(event.reason.value)
            elif not isinstance(event, PromptEvent):
                found[event.request_id].append((event.token_id, event.logprob))
    return found


def compare_schedules(make: Callable[[], CudaDevice], ops: CpuOps, has_time: Callable[[], bool]) -> Iterator[ROW]:
    """Yields one row for each pair of formats and schedule: how many requests differ from those computed one at a time
    on the CPU."""
    folder = spark_path()
    model, packer = read_folder(folder), NativePacker(ops.level, 1)
    for name, kv in FORMATS:
        with Checkpoint.open(folder) as checkpoint:
            weights = load_weights(checkpoint, model, format_choice(name), packer)
        asked, expected = requests(), dict[str, list[Any]]()
        for request in asked:
            expected |= outputs(engine(model, weights, kv, ops, 128, PLENTY), [request])
        for words, rows, pages, early in SCHEDULES:
            case = f"exactness: {name}, K and V {kv.name.lower()}, {words}"
            if not has_time():
                yield {"case": case, "not_run": "no time left"}
                continue
            device = make()
            together = [request for request in asked if steady(request)] if early else asked
            found = outputs(engine(model, weights, kv, device, rows, pages, early), together)
            device.close()
            wrong = sum(repr(found[each]) != repr(expected[each]) for each in found)
            yield {"case": case, "bytes": len(together), "different": wrong}
    packer.close()
