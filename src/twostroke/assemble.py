"""The one composition root: reads what was asked, builds every object, hands out finished engines.

Knows: everything below it.
Must not know: click, HTTP routes.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps, NativePacker, best_level, require_level
from twostroke.backends.cpu.health import check_kernels
from twostroke.backends.cpu.huge_pages import HUGE_PAGE_BYTES, populate, settle
from twostroke.cache.manager import CacheManager
from twostroke.config import (
    GAP_LIMITER,
    ModelFacts,
    Resolved,
    Resolver,
    collect,
    kv_kind,
    objectives_of,
    resolve_engine,
    resolve_memory,
    step_rule,
)
from twostroke.cost.explain import Explainer
from twostroke.cost.explain_advice import Options
from twostroke.cost.ledger import Ledger, Sink
from twostroke.cost.memory import PROCESS_BYTES, MemoryNeeds
from twostroke.cost.what_if import WhatIf
from twostroke.cost_here import check_objectives, costs_here
from twostroke.engine.cold_steps import ColdSteps
from twostroke.engine.isolate import IsolatingExecutor
from twostroke.engine.limits import EngineLimits
from twostroke.engine.observer import Observer
from twostroke.engine.record_file import RecordFile
from twostroke.engine.session import Session
from twostroke.engine.stepper import Stepper
from twostroke.engine.sync_engine import SyncEngine
from twostroke.engine.witness import Witness, WitnessedExecutor
from twostroke.env import Machine, asked_by_environment, hub_offline, read_machine
from twostroke.ops.step_memory import MemorySizes, StepMemory, page_table_bytes
from twostroke.program.model import Model
from twostroke.program.place import place
from twostroke.quant.formats import format_choice
from twostroke.run_delay import RunDelay
from twostroke.runner.backing import PoolBacking
from twostroke.runner.folder import read_folder
from twostroke.runner.runner import ModelRunner
from twostroke.sampling.random_draw import sibling_seed
from twostroke.scheduler.gap_limiter import GapRule
from twostroke.scheduler.limits import SchedulerLimits
from twostroke.scheduler.objective_policy import objective_policy
from twostroke.scheduler.policy import ArrivalPolicy, Policy, arrival_policy
from twostroke.scheduler.scheduler import Scheduler
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.text.chat_template import ChatTemplate
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.background_check import BackgroundCheck
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.generation import GenerationDefaults, read_generation_defaults
from twostroke.weights.hub import ModelFolder, resolve_model
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed_cache import NO_CACHE, PACKED, CachedWeights, cached_weights
from twostroke.weights.settle import Settler

Progress = Callable[[int, int, str], None]
Report = Callable[[str], None]
EMBEDDED = "spark"


@dataclass(frozen=True, slots=True)
class Found:
    """A model whose settings are known and whose weights are not read yet."""

    folder: ModelFolder
    spec: Model
    resolver: Resolver
    machine: Machine
    num_pages: int
    costs: WhatIf

    @property
    def name(self) -> str:
        """The name for messages: the embedded model's, or the last part of folder or hub id."""
        return self.folder.source if "/" not in self.folder.source else Path(self.folder.source).name


@dataclass(eq=False)
class Heart:
    """A loaded engine without its shell."""

    stepper: Stepper
    session: Session
    tokenizer: Tokenizer
    template: ChatTemplate | None
    spec: Model
    resolved: Resolved
    model_name: str
    generation: GenerationDefaults
    settler: Settler
    weights_check: BackgroundCheck
    explainer: Explainer
    closing: ExitStack
    cache: CacheManager
    costs: WhatIf

    @property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """What generation_config.json says, by the names of SamplingParams."""
        return self.generation.sampling

    def close(self) -> None:
        """Give threads back."""
        self.closing.close()

    def __enter__(self) -> Heart:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(eq=False)
class BuiltSync(Heart):
    """With the plain loop's shell."""

    engine: SyncEngine


def find_model(model: str, options: Mapping[str, Any]) -> Found:
    """Resolve everything up to memory; downloads where `model` is a hub id. Raises TwostrokeError."""
    machine = read_machine()
    resolver = Resolver(collect(options, asked_by_environment()))
    folder = locate(model, resolver.asked_value("revision"))
    spec = read_folder(folder.path)
    resolve_engine(resolver, ModelFacts(folder.source, folder.revision, spec), machine, best_level())
    settings = resolver.resolved()
    require_level(settings["cpu_level"])
    context, sequences = settings["context"], settings["max_sequences"]
    needs = MemoryNeeds(
        weight_bytes=spec.weight_bytes(format_choice(settings["weights"])),
        buffer_bytes=place(spec.program, settings["max_step_tokens"], sequences).num_bytes,
        kv_token_bytes=spec.kv_bytes_per_token(kv_kind(settings["kv_format"])),
        context_tokens=context,
        useful_tokens=context * sequences,
        table_bytes=spec.rope_bytes(context) + page_table_bytes(context, sequences),
        process_bytes=PROCESS_BYTES,
    )
    num_pages = resolve_memory(resolver, needs, machine).num_pages
    kinds = kv_kind(settings["kv_format"])
    level, threads = settings["cpu_level"], settings["threads"]
    costs = costs_here(spec, settings["weights"], kinds, machine.cache_folder, level, threads)
    if objectives_of(settings).any:
        check_objectives(costs, objectives_of(settings))
        resolver.put("step_cost", "measured" if costs.measured else "guessed", costs.source)
    return Found(folder, spec, resolver, machine, num_pages, costs)


def locate(model: str, revision: str | None = None, progress: Progress | None = None) -> ModelFolder:
    """The embedded model, a folder, or a hub id (downloaded)."""
    if model == EMBEDDED:
        return ModelFolder(spark_path(), EMBEDDED, None)
    return resolve_model(model, revision=revision, offline=hub_offline(), progress=progress)


def resolve_all(model: str, options: Mapping[str, Any]) -> Resolved:
    """Every setting with its reason; no weights are read."""
    from twostroke.config import resolve_overload, resolve_server

    found = find_model(model, options)
    resolve_server(found.resolver, found.name)
    resolve_overload(found.resolver, found.num_pages * PAGE_TOKENS)
    return found.resolver.resolved()


def build_heart(
    found: Found,
    progress: Progress | None,
    report: Report,
    observer: Observer | None = None,
    witness: Witness | None = None,
) -> Heart:
    """Load the weights and put the engine together. Raises TwostrokeError."""
    resolved = found.resolver.resolved()
    spec, folder = found.spec, found.folder.path
    tokenizer = Tokenizer.from_folder(folder)
    generation = read_generation_defaults(folder)
    loaded = load(found, resolved, progress, report)
    weights, weights_check = loaded.weights, BackgroundCheck(loaded.file)
    closing = ExitStack()
    closing.callback(weights_check.close)
    ops = CpuOps(resolved["cpu_level"], resolved["threads"])
    closing.callback(ops.close)
    settler = _settler(weights, found.machine)
    closing.callback(settler.close)
    sizes = (resolved["max_step_tokens"], resolved["max_sequences"])
    memory_sizes = MemorySizes(found.num_pages, resolved["context"], *sizes)
    kind = kv_kind(resolved["kv_format"])
    memory = StepMemory(spec.program, weights.matrices, weights.vectors, kind, memory_sizes)
    backing = PoolBacking([layer.data for layer in memory.layers], populate)
    closing.callback(backing.close)
    runner = ModelRunner(ops.compile(spec.program, memory), memory, time.perf_counter, RunDelay())
    cache = CacheManager(found.num_pages, PAGE_TOKENS, backing.on_fresh_page)
    scheduler = Scheduler(cache, SchedulerLimits(*sizes), _policy(found, resolved))
    ends = frozenset(generation.eos_token_ids) | frozenset(spec.eos_token_ids) | tokenizer.end_token_ids
    grammars = GrammarCompiler(tokenizer, spec.vocab_size, ends)
    closing.callback(grammars.close)
    reach = (resolved["context"], spec.vocab_size, found.num_pages * PAGE_TOKENS)
    limits = EngineLimits(*reach, ends, objectives_of(resolved))
    ledger = Ledger(found.costs.now, _trace(resolved, found.costs, report, closing))
    session = Session(
        scheduler,
        tokenizer,
        limits,
        draw_seed=lambda: secrets.randbits(63),
        sibling_seed=sibling_seed,
        observer=observer,
        grammars=grammars,
        ledger=ledger,
    )

    def report_fault(error: BaseException) -> None:
        report(f"engine fault: {type(error).__name__}: {error}")

    watched = runner if witness is None else WitnessedExecutor(runner, witness)
    cold = ColdSteps(watched, lambda: settler.moved_bytes + backing.backed_pages)
    executor = IsolatingExecutor(cold, report_fault)
    stepper = Stepper(
        scheduler,
        executor,
        session,
        time.perf_counter,
        report_fault,
        probe=lambda: check_kernels(ops),
        require_sound=weights_check.require_sound,
    )
    weights_check.start()
    settler.start()
    backing.start()
    return Heart(
        stepper,
        session,
        tokenizer,
        ChatTemplate.from_folder(folder),
        spec,
        resolved,
        found.name,
        generation,
        settler,
        weights_check,
        Explainer(ledger, found.costs, Options(*sizes, step_rule(resolved))),
        closing,
        cache,
        found.costs,
    )


def build_sync(model: str, options: Mapping[str, Any], progress: Progress | None = None) -> BuiltSync:
    """A loaded engine with the plain loop's shell."""
    heart = build_heart(find_model(model, options), progress, print_report)
    return BuiltSync(**_fields(heart), engine=SyncEngine(heart.stepper))


def _trace(resolved: Resolved, costs: WhatIf, report: Report, closing: ExitStack) -> Sink | None:
    if resolved["trace"] is None:
        return None
    file = RecordFile(Path(resolved["trace"]).expanduser(), costs.source, report)
    closing.callback(file.close)
    return file.write


def load(found: Found, resolved: Resolved, progress: Progress | None, report: Report) -> CachedWeights:
    """Packed weights: mapped from the cache, packed into it, or (cache off, or f32 of the embedded) into memory."""
    format_for = format_choice(resolved["weights"])
    packer = NativePacker(resolved["cpu_level"], resolved["threads"])
    try:
        with Checkpoint.open(found.folder.path) as checkpoint:
            if resolved["cache"] == NO_CACHE:
                return CachedWeights(load_weights(checkpoint, found.spec, format_for, packer, progress))
            cache_folder = Path(resolved["cache"]).expanduser() / PACKED
            return cached_weights(cache_folder, checkpoint, found.spec, format_for, packer, progress, report)
    finally:
        packer.close()


def _policy(found: Found, resolved: Resolved) -> Policy:
    """By order of arrival where nothing is promised."""
    guessed = not found.costs.measured
    if resolved["step_limiter"] == GAP_LIMITER:
        return arrival_policy(found.costs.now, GapRule(), PAGE_TOKENS, guessed)
    if not objectives_of(resolved).any:
        return ArrivalPolicy()
    limits = SchedulerLimits(resolved["max_step_tokens"], resolved["max_sequences"])
    return objective_policy(found.costs.now, objectives_of(resolved), limits, PAGE_TOKENS, guessed=guessed)


def _settler(weights: ModelWeights, machine: Machine) -> Settler:
    nothing = np.empty(0, np.uint8)
    mapped = weights.mapped if weights.mapped is not None and machine.huge_pages else nothing
    return Settler(mapped, settle, HUGE_PAGE_BYTES)


def print_report(sentence: str) -> None:
    """Warnings of library use go to standard error."""
    print(sentence, file=sys.stderr)


def room_sentence(resolved: Resolved) -> str:
    """ "room for 41,000 tokens: 20 sequences of 2,048"."""
    tokens, context = resolved["kv_tokens"], resolved["context"]
    length = min(context, 2048)
    return (
        f"KV cache {resolved['kv_memory'] / 1e6:,.0f} MB ({resolved['kv_format']}): "
        f"room for {tokens:,} tokens: {tokens // length:,} sequences of {length:,}"
    )


def _fields(heart: Heart) -> dict[str, Any]:
    return {name: getattr(heart, name) for name in Heart.__dataclass_fields__}
