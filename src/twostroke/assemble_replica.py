"""A replica put together: the engine of `assemble` without its session, behind a socket.

Knows: assemble, the cluster's parts.
Must not know: click, HTTP, fronts.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twostroke import assemble
from twostroke.assemble_caches import own_pools
from twostroke.assemble_task import require_generating
from twostroke.cluster.arithmetic import arithmetic_of
from twostroke.cluster.link import secret_key
from twostroke.cluster.replica import ReplicaServer
from twostroke.cluster.replica_core import PREFILL_TOKENS, ReplicaCore
from twostroke.config import collect, refuse_adapters
from twostroke.cost.shape import Segment
from twostroke.env import asked_by_environment
from twostroke.fleet.wire import ReplicaFacts
from twostroke.scheduler.step_time import StepTime
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.fingerprint import content_fingerprint


@dataclass(eq=False)
class BuiltReplica:
    """replica: to be served and closed with `heart`. facts: for people."""

    replica: ReplicaServer
    heart: assemble.Heart
    facts: dict[str, Any]


def build_replica(
    model: str,
    options: Mapping[str, Any],
    listener: socket.socket,
    name: str,
    secret: str | None,
    say: Callable[[str], None],
    progress: Callable[[int, int, str], None] | None = None,
) -> BuiltReplica:
    """Load a model and make a replica that listens. Raises TwostrokeError."""
    refuse_adapters(collect(options, asked_by_environment()), "Replicas")
    found = assemble.find_model(model, options)
    require_generating(found.spec)
    heart = assemble.build_heart(found, progress, say)
    resolved, stepper, spec = heart.resolved, heart.stepper, found.spec
    with Checkpoint.open(found.folder.path) as checkpoint:
        content = content_fingerprint(checkpoint)
    unit = resolved["cpu_level"] if found.device is None else "cuda"
    names = (unit, resolved["weights"], resolved["kv_format"])
    context = resolved["context"]
    tables = hashlib.blake2b(repr((context, spec.program.ropes)).encode(), digest_size=8).hexdigest()
    times = StepTime.of(found.costs.now, not found.costs.measured)
    prompt_s = times.usual_s([Segment.prefill(0, PREFILL_TOKENS, True)])
    pools = own_pools(spec, found.kv_plan)
    facts = ReplicaFacts(
        name=name,
        instance=secrets.token_hex(8),
        model=content,
        arithmetic=arithmetic_of(stepper.executor, names, spec.vocab_size, PAGE_TOKENS, tables, pools),
        page_tokens=PAGE_TOKENS,
        pool_tokens=found.kv_plan.tokens,
        context_tokens=context,
        vocab_size=spec.vocab_size,
        max_sequences=resolved["max_sequences"],
        token_s=prompt_s / PREFILL_TOKENS,
    )
    core = ReplicaCore(heart.scheduler, stepper.executor, stepper.clock, times, stepper.report_fault, stepper.probe)
    replica = ReplicaServer(core, facts, heart.grammars, listener, secret_key(secret), say)
    shown = {each: resolved[each] for each in ("weights", "kv_format", "cpu_level", "threads", "kv_tokens", "context")}
    return BuiltReplica(replica, heart, {"name": name, "model": found.name, **shown})
