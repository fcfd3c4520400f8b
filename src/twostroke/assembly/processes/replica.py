"""Builds a replica: the engine of `assemble`, which fronts reach through a socket."""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twostroke.assembly import engine as assemble
from twostroke.assembly import optional
from twostroke.assembly.arithmetic import DEVICE, arithmetic_here, encoder_arithmetic_here
from twostroke.assembly.caches import own_pools
from twostroke.assembly.find import Found, FoundEncoder, find_encoder, find_model
from twostroke.assembly.grammars import GrammarsAhead
from twostroke.assembly.images.encoder_heart import EncoderHeart, build_encoder_heart
from twostroke.assembly.settings.config import refuse_later_adapters
from twostroke.assembly.settings.engine_settings import (
    CacheSettings,
    CpuSettings,
    ImageSettings,
    MemorySettings,
    ModelSettings,
    StepSettings,
)
from twostroke.assembly.settings.env import asked_by_environment
from twostroke.assembly.settings.resolver import collect
from twostroke.cost.shape import Segment
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.replica.core import ReplicaCore
from twostroke.distributed.replica.no_streams import NoGrammars, NoStreams
from twostroke.distributed.replica.page_exchange import PageExchange
from twostroke.distributed.replica.server import ReplicaServer
from twostroke.distributed.replica.streams import PREFILL_TOKENS, LoopStreams
from twostroke.distributed.wire.frames import Arithmetic, ReplicaFacts, ReplicaRole
from twostroke.engine.scheduler.estimates.step_time import StepTime
from twostroke.engine.scheduler.limits.last_chunk import SmallLastChunk
from twostroke.runner.pool_pages import PoolPages
from twostroke.types.errors import ConfigError
from twostroke.types.pooling import Task
from twostroke.types.request import Request
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.weights.packed.fingerprint import content_fingerprint, content_of_folder

if TYPE_CHECKING:
    from twostroke.assembly.images.sight import SightPlan
    from twostroke.runner.images.shared_rows import SharedRows

USUAL_ROWS = 256
"""The number of image rows of the tile from which the predicted seconds of one image row are taken."""


@dataclass(eq=False)
class BuiltReplica:
    """A replica with its engine. replica: the server that answers the messages of fronts. heart: the objects of the
    engine, or of the image encoder; they are closed together with the server. facts: what the start shows to people,
    such as the model's name."""

    replica: ReplicaServer
    heart: assemble.Heart | EncoderHeart
    facts: dict[str, Any]


@dataclass(frozen=True)
class ReplicaEndpoint:
    """A replica's place in its cluster: the socket where fronts (the HTTP servers) reach it, its name, its secret, and
    the work that it computes."""

    listener: socket.socket
    name: str
    secret: str | None
    role: ReplicaRole = "both"


def build_replica(
    model: str,
    options: Mapping[str, Any],
    endpoint: ReplicaEndpoint,
    say: Callable[[str], None],
    progress: Callable[[int, int, str], None] | None = None,
) -> BuiltReplica:
    """Loads a model and makes a replica that listens. Raises TwostrokeError."""
    role = endpoint.role
    refuse_later_adapters(collect(options, asked_by_environment()))
    if role == "encode":
        return _build_encoder(find_encoder(model, options), endpoint, say)
    found = find_model(model, options)
    if role != "both" and (reason := _why_no_pages(found)):
        raise ConfigError(f"--role {role} cannot be used here.", why=reason, fix="Leave --role out.")
    heart = assemble.build_heart(found, progress, say, preparation=GrammarsAhead)
    resolved, stepper, spec = heart.resolved, heart.stepper, found.spec
    if role == "prefill":
        heart.scheduler.limiters = (SmallLastChunk(PAGE_TOKENS), *heart.scheduler.limiters)
    content = _content(found.folder.path, found.sight)
    unit = resolved.cpu.cpu_level if found.device is None else DEVICE
    times = StepTime.of(found.costs.now, not found.costs.measured)
    prompt_s = times.usual_s([Segment.prefill(0, PREFILL_TOKENS, True)])
    pools = own_pools(spec, found.kv_plan)
    pages, images = None if _why_no_pages(found) else PoolPages(heart.memory), _shared_rows(heart)
    loaded = () if heart.adapters is None else heart.adapters.loaded()
    adapters = tuple(each.name for each in loaded)
    facts = ReplicaFacts(
        name=endpoint.name,
        instance=secrets.token_hex(8),
        model=content,
        arithmetic=arithmetic_here(stepper.loop.executor, spec, resolved, pools, unit, resolved.task.pooling),
        page_tokens=PAGE_TOKENS,
        pool_tokens=found.kv_plan.tokens,
        context_tokens=resolved.steps.context,
        vocab_size=spec.vocab_size,
        max_sequences=resolved.steps.max_sequences,
        token_s=prompt_s / PREFILL_TOKENS,
        role=role,
        page_bytes=0 if pages is None else pages.page_bytes,
        objectives=resolved.steps.objectives,
        adapters=adapters,
        adapter_salts=tuple(each.taken.salt for each in loaded),
        sight="" if heart.eyes is None else heart.eyes.fingerprint,
        image_row_s=0.0 if images is None else images.row_s(USUAL_ROWS),
        image_row_bytes=0 if images is None else images.row_bytes,
        encoder=_encoder_of(found, heart),
        keeps_pages=heart.disk is not None,
    )
    exchange = None if pages is None else PageExchange(heart.cache, pages)
    possible = partial(why_not, spec.task, len(adapters))
    streams = LoopStreams(stepper.loop, times, heart.explainer, possible, heart.disk)
    core = ReplicaCore(streams, exchange, images)
    replica = ReplicaServer(core, facts, heart.grammars, endpoint.listener, secret_key(endpoint.secret), say)
    formats, sizes = (ModelSettings.weights, CacheSettings.kv_format), (CacheSettings.kv_tokens, StepSettings.context)
    shown = resolved.values(*formats, CpuSettings.cpu_level, CpuSettings.threads, *sizes)
    return BuiltReplica(replica, heart, {"name": endpoint.name, "model": found.name, "role": role, **shown})


def _build_encoder(found: FoundEncoder, endpoint: ReplicaEndpoint, say: Callable[[str], None]) -> BuiltReplica:
    """Builds a replica that encodes images for others. It loads only the encoder of the model."""
    heart = build_encoder_heart(found)
    resolved, rows, spec = heart.resolved, heart.rows, found.spec
    arithmetic = encoder_arithmetic_here(heart.kept, found.sight, resolved)
    with closing(found.sight.eyes(resolved)) as eyes:
        rules = eyes.fingerprint
    facts = ReplicaFacts(
        name=endpoint.name,
        instance=secrets.token_hex(8),
        model=_content(found.folder.path, found.sight),
        arithmetic=arithmetic,
        page_tokens=PAGE_TOKENS,
        pool_tokens=0,
        context_tokens=resolved.steps.context,
        vocab_size=spec.vocab_size,
        max_sequences=resolved.steps.max_sequences,
        token_s=0.0,
        role=endpoint.role,
        sight=rules,
        image_row_s=rows.row_s(USUAL_ROWS),
        image_row_bytes=rows.row_bytes,
        encoder=arithmetic,
    )
    key = secret_key(endpoint.secret)
    core = ReplicaCore(NoStreams(), images=rows)
    replica = ReplicaServer(core, facts, NoGrammars(), endpoint.listener, key, say)
    sizes = (MemorySettings.weight_bytes, MemorySettings.buffer_bytes, ImageSettings.image_cache)
    shown = resolved.values(ModelSettings.weights, CpuSettings.cpu_level, CpuSettings.threads, *sizes)
    return BuiltReplica(replica, heart, {"name": endpoint.name, "model": found.name, "role": endpoint.role, **shown})


def _encoder_of(found: Found, heart: assemble.Heart) -> Arithmetic | None:
    """Returns the facts that decide the bits of image rows, such as formats; None for a model that reads no images."""
    if found.sight is None or heart.images is None:
        return None
    return encoder_arithmetic_here(heart.images.kept, found.sight, heart.resolved)


def why_not(task: Task, num_adapters: int, request: Request) -> str:
    """Returns the reason why this replica cannot compute a request; empty where it can."""
    if (request.pooling is None) is not (task is Task.GENERATE):
        return f"This replica is for the task {task}."
    return "" if -1 <= request.adapter < num_adapters else "This replica does not have this adapter."


def _shared_rows(heart: assemble.Heart) -> SharedRows | None:
    """Returns the object that encodes images for other replicas, and stores image rows that other replicas encoded for
    this one. Returns None for a model that reads no images. heart: the engine's objects."""
    cost = heart.scheduler.images.cost
    if heart.images is None or cost is None:
        return None
    return optional.shared_rows.SharedRows(heart.images, cost, heart.scheduler.images, heart.cache, time.perf_counter)


def _content(folder: Path, sight: SightPlan | None) -> str:
    """Returns a fingerprint of all weights, including those of an encoder in files of its own."""
    content = content_of_folder(folder)
    if sight is None or not sight.files.apart:
        return content
    with sight.files.open() as checkpoint:
        both = content + content_fingerprint(checkpoint)
    return hashlib.blake2b(both.encode(), digest_size=16).hexdigest()


def _why_no_pages(found: Found) -> str:
    """Returns the reason why K and V of this model cannot be sent to another replica or taken from one; empty where
    they can."""
    pools = own_pools(found.spec, found.kv_plan)
    if pools.state_slots or any(pool.window for pool in pools.pages):
        return "The model has layers with a window or a state; only K and V that stay are sent."
    if found.places is not None:
        return "The model is divided among several processes, and this one has a part of K and V."
    if found.device is not None:
        return "K and V lie in the device's memory; only those in the host's memory are sent."
    if found.guessing is not None:
        return "What guesses has K and V of its own, which are not sent."
    return ""
