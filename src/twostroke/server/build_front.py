"""Puts a front together: tokenizer, template, text and HTTP in this process, and a fleet of replicas in place of an
engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from twostroke import __version__
from twostroke.assembly import folders as assemble_folders
from twostroke.assembly.images.seeing import front_eyes
from twostroke.assembly.machine.heap import keep_little, trim
from twostroke.assembly.seeds import SEEDS
from twostroke.assembly.settings.config import resolve_overload, resolve_server
from twostroke.assembly.settings.engine_settings import DiskSettings, ModelSettings
from twostroke.assembly.settings.env import asked_by_environment, read_machine
from twostroke.assembly.settings.resolver import Resolver, collect
from twostroke.assembly.task import build_texts, read_for_task
from twostroke.distributed.cluster.front import Address, FrontStepper, no_check
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.fleet.fixed_adapters import FixedAdapters
from twostroke.distributed.wire.frames import ReplicaFacts
from twostroke.engine.limits import EngineLimits
from twostroke.engine.loop_engine import LoopEngine
from twostroke.engine.resources import Resources
from twostroke.engine.session import Session
from twostroke.server.adapters import ServedAdapters
from twostroke.server.build import access_of, admission_of, settled, slots_in
from twostroke.server.built import BuiltServer
from twostroke.server.card import card_of
from twostroke.server.gate.fleet_forecast import FleetForecast
from twostroke.server.gate.forecast import Listeners
from twostroke.server.live.about import front_about
from twostroke.server.live.view import EngineView
from twostroke.server.parts import ServerParts, Telemetry
from twostroke.server.serving import Serving
from twostroke.server.slots.fleet_disk import FleetDisk
from twostroke.server.slots.kept import Slots
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.weights.generation import read_generation_defaults
from twostroke.weights.packed.cache_choice import kept_folder

FIRST_REPLICA_S = 120.0
"""How many seconds a front waits for the first replica, which may still be loading."""


def build_front(
    model: str,
    options: Mapping[str, Any],
    addresses: Sequence[Address],
    secret: str | None,
    say: Callable[[str], None],
    check: Callable[[], None] = no_check,
) -> BuiltServer:
    """Build everything but the weights, which belong to the replicas. Waits for the first replica. Raises
    TwostrokeError.

    check: called while it waits; raises when no replica will come.
    """
    keep_little()
    resolver = Resolver(collect(options, asked_by_environment()))
    folder = assemble_folders.locate(model, resolver.asked_value(ModelSettings.revision))
    spec, files = read_for_task(resolver, folder.path, None)
    tokenizer, template = assemble_folders.texts_of(resolver, folder.path)
    generation, found = read_generation_defaults(folder.path), assemble_folders.name_of(folder)
    resolve_server(resolver, found)

    def report(error: BaseException) -> None:
        say(f"fault: {type(error).__name__}: {error}")

    stepper = FrontStepper(addresses, PAGE_TOKENS, secret_key(secret), time.perf_counter, report, say)
    facts = stepper.first_facts(FIRST_REPLICA_S, check)
    resolve_overload(resolver, facts.pool_tokens * len(addresses))
    resolved = resolver.resolved()
    ends = frozenset(generation.eos_token_ids) | frozenset(spec.eos_token_ids) | tokenizer.end_token_ids
    grammars = GrammarCompiler(tokenizer, facts.vocab_size, ends)
    grammars.prepare(trim)
    adapters = FixedAdapters(facts.adapters) if facts.adapters else None
    texts = build_texts(spec, resolved.task.pooling, files, tokenizer, folder.path)
    closing = ExitStack()
    closing.callback(grammars.close)
    closing.callback(stepper.close)
    metrics, forecast = ServerMetrics(), FleetForecast(lambda: stepper.fleet.members)
    stepper.session = Session(
        stepper.fleet,
        tokenizer,
        _limits(facts, ends, spec.task),
        seeds=SEEDS,
        observer=Listeners(metrics, forecast),
        ledger=stepper.fleet.ledger,
        resources=Resources(grammars, adapters),
    )
    replicas = len(addresses)
    told = front_about(resolved, facts, replicas, __version__)
    serving = Serving(
        engine=LoopEngine(stepper),
        tokenizer=tokenizer,
        template=template,
        adapters=ServedAdapters(adapters),
        embedder=texts.embedder,
        reranker=texts.reranker,
        eyes=front_eyes(resolver, spec, folder.path, facts.sight, closing),
        context_tokens=facts.context_tokens,
        defaults=generation.sampling,
        fingerprint=_fingerprint(facts),
        card=card_of(folder, found, facts.arithmetic.weights, spec, 0),
        slots=_slots(resolver, facts, stepper),
        view=EngineView(stepper.fleet.ledger, stepper.pages, stepper.clock, told, stepper.replicas),
    )
    parts = ServerParts(
        settled(serving, resolved, folder.path),
        admission_of(resolved, forecast.wait_s),
        access_of(resolved),
        Telemetry(metrics, explain=stepper.explain),
    )
    shown = {"served_name": resolved.names.served_name, "replicas": replicas, "weights": facts.arithmetic.weights}
    return BuiltServer(parts, resolved, shown | {"context": facts.context_tokens}, closing.close)


def _slots(resolver: Resolver, facts: ReplicaFacts, stepper: FrontStepper) -> Slots | None:
    """Returns the slots that clients save and restore with /slots/{id}; None when the replicas keep no KV pages on a
    disk, or the front has no cache folder. The files of saved slots lie in this folder, the pages on the disks of the
    replicas."""
    kept = kept_folder(resolver.asked_value(DiskSettings.cache), read_machine().cache_folder)
    if not facts.keeps_pages or kept is None:
        return None
    return slots_in(kept, FleetDisk(lambda: stepper.fleet.members))


def _limits(facts: ReplicaFacts, ends: frozenset[int], task: Task) -> EngineLimits:
    sizes = (facts.context_tokens, facts.vocab_size, facts.pool_tokens)
    return EngineLimits(*sizes, ends, facts.objectives, task=task)


def _fingerprint(facts: ReplicaFacts) -> str:
    """Returns a fingerprint of the model and the arithmetic of all replicas. The same fingerprint means the same bits.
    """
    arithmetic = facts.arithmetic
    return f"ts-{facts.model[:6]}{arithmetic.probe[:6]}"
