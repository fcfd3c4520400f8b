"""Names the parts of an engine that only some models and settings need. Each part is imported when it is first used.

A start pays for every module that it imports. A part that most starts do not need is named here and used through its
module's name: `shelf.AdapterShelf(...)`. `tests/cli/test_start.py` checks that a usual start imports none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twostroke.types.first_use.lazy_module import LazyModule

if TYPE_CHECKING:
    from twostroke.assembly.images import rank_sight
    from twostroke.backends import cuda
    from twostroke.backends.cuda import health as cuda_health
    from twostroke.backends.cuda import limits as cuda_limits
    from twostroke.cost.explain import advice, verdict
    from twostroke.distributed.cluster import link
    from twostroke.distributed.ranks import frames, leader, processes
    from twostroke.engine.scheduler.objectives import objective_policy
    from twostroke.ops.passes import division, with_adapters
    from twostroke.quantize.driver import kept_result
    from twostroke.runner import ahead as runner_ahead
    from twostroke.runner.adapters import bank, lora_folder, shelf
    from twostroke.runner.device import early_runner
    from twostroke.runner.device import sampler as device_sampler
    from twostroke.runner.images import shared_rows
    from twostroke.runner.retrieval import embedder, reranker
    from twostroke.text.templates import chat_template
else:
    bank = LazyModule("twostroke.runner.adapters.bank")
    lora_folder = LazyModule("twostroke.runner.adapters.lora_folder")
    shelf = LazyModule("twostroke.runner.adapters.shelf")
    cuda = LazyModule("twostroke.backends.cuda")
    cuda_health = LazyModule("twostroke.backends.cuda.health")
    cuda_limits = LazyModule("twostroke.backends.cuda.limits")
    link = LazyModule("twostroke.distributed.cluster.link")
    advice = LazyModule("twostroke.cost.explain.advice")
    verdict = LazyModule("twostroke.cost.explain.verdict")
    division = LazyModule("twostroke.ops.passes.division")
    with_adapters = LazyModule("twostroke.ops.passes.with_adapters")
    kept_result = LazyModule("twostroke.quantize.driver.kept_result")
    frames = LazyModule("twostroke.distributed.ranks.frames")
    leader = LazyModule("twostroke.distributed.ranks.leader")
    rank_sight = LazyModule("twostroke.assembly.images.rank_sight")
    processes = LazyModule("twostroke.distributed.ranks.processes")
    embedder = LazyModule("twostroke.runner.retrieval.embedder")
    reranker = LazyModule("twostroke.runner.retrieval.reranker")
    early_runner = LazyModule("twostroke.runner.device.early_runner")
    runner_ahead = LazyModule("twostroke.runner.ahead")
    device_sampler = LazyModule("twostroke.runner.device.sampler")
    shared_rows = LazyModule("twostroke.runner.images.shared_rows")
    objective_policy = LazyModule("twostroke.engine.scheduler.objectives.objective_policy")
    chat_template = LazyModule("twostroke.text.templates.chat_template")

__all__ = [
    "advice",
    "bank",
    "chat_template",
    "cuda",
    "cuda_health",
    "cuda_limits",
    "device_sampler",
    "division",
    "early_runner",
    "embedder",
    "frames",
    "kept_result",
    "leader",
    "link",
    "lora_folder",
    "objective_policy",
    "processes",
    "rank_sight",
    "reranker",
    "runner_ahead",
    "shared_rows",
    "shelf",
    "verdict",
    "with_adapters",
]
