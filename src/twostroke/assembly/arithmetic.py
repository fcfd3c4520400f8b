"""Describes the arithmetic of an engine: the settings and facts of the model that decide the bits of its answers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from twostroke.assembly.settings.resolver import Resolved
from twostroke.distributed.cluster.arithmetic import arithmetic_of, encoder_arithmetic
from twostroke.distributed.wire.frames import Arithmetic
from twostroke.engine.executor import Executor
from twostroke.ops.program.model import Model
from twostroke.types.cache_pools import CachePools
from twostroke.types.pooling import Pooling

if TYPE_CHECKING:
    from twostroke.assembly.images.sight import SightPlan
    from twostroke.runner.images.image_encoder import KeptRows

DEVICE = "cuda"


def arithmetic_here(
    executor: Executor, spec: Model, resolved: Resolved, pools: CachePools, unit: str, pooling: Pooling | None = None
) -> Arithmetic:
    """Returns the facts that decide the bits of this engine's answers, such as formats. unit: the CPU level, or DEVICE.

    One of the facts is the result of a small computation in the pools, so call this before anything else uses them.
    """
    names = (unit, resolved.model.weights, resolved.cache.kv_format, resolved.cache.key_factors)
    turned = (resolved.steps.context, spec.program.ropes)
    tables = hashlib.blake2b(repr(turned).encode(), digest_size=8).hexdigest()
    most = resolved.steps.max_step_tokens
    return arithmetic_of(executor, names, spec.vocab_size, tables, pools, most, pooling)


def encoder_arithmetic_here(kept: KeptRows, plan: SightPlan, resolved: Resolved) -> Arithmetic:
    """Returns a description of the arithmetic that decides the bits of image rows. kept: the loaded encoder; it encodes
    a small tile, whose bits are part of the description."""
    form, rows = plan.form(resolved), kept.made_of(plan.probe())
    turned = repr(plan.encoder.model.program.ropes)
    return encoder_arithmetic(resolved.cpu.cpu_level, form.weights, form.kv.name.lower(), turned, rows.tobytes())
