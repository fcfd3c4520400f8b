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
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from twostroke import assemble_device as placing
from twostroke.adapters.shelf import AdapterShelf
from twostroke.assemble_adapters import AdapterPlan, plan_adapters
from twostroke.assemble_caches import cache_of, draft_pools, longest_sequence, own_pools, scheduler_limits
from twostroke.assemble_eagle import EagleModel, build_eagle
from twostroke.assemble_folders import compared_heads_folder, locate, name_of
from twostroke.assemble_guesses import (
    DraftModel,
    GuessingModel,
    build_draft,
    build_guesser,
    check_draft,
    draft_name,
    ways_of,
)
from twostroke.assemble_heads import MedusaModel, build_medusa, find_heads, medusa_proposer, with_hidden
from twostroke.assemble_task import Texts, build_texts, read_for_task
from twostroke.assemble_weights import Progress, Report, load
from twostroke.backends.cpu import CpuOps, best_level, require_level
from twostroke.backends.cuda import CudaDevice
from twostroke.beams.book import BeamBook
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
from twostroke.cost.memory import PROCESS_BYTES, KVPlan, MemoryNeeds
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
from twostroke.env import Machine, asked_by_environment, read_machine
from twostroke.ops.step_memory import StepMemory, page_table_bytes
from twostroke.program.cache_groups import cache_groups
from twostroke.program.model import Model
from twostroke.program.place import place
from twostroke.quant.formats import format_choice
from twostroke.retrieval.sentence_files import SentenceFiles
from twostroke.run_delay import RunDelay
from twostroke.runner.folder import read_folder
from twostroke.runner.forward import Forward
from twostroke.runner.hidden_rows import StepReader
from twostroke.runner.runner import ModelRunner
from twostroke.sampling.random_draw import sibling_seed
from twostroke.scheduler.gap_limiter import GapRule
from twostroke.scheduler.objective_policy import objective_policy
from twostroke.scheduler.policy import ArrivalPolicy, Policy, arrival_policy
from twostroke.scheduler.scheduler import Scheduler
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.speculate.guess_limiter import GUESS_ROWS
from twostroke.speculate.guesser import Guesser
from twostroke.speculate.proposer import Proposer
from twostroke.text.chat_template import ChatTemplate
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.background_check import BackgroundCheck
from twostroke.weights.generation import GenerationDefaults, read_generation_defaults
from twostroke.weights.hub import ModelFolder
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed_cache import kept_folder
from twostroke.weights.settle import Settler


@dataclass(frozen=True, slots=True)
class Found:
    """A model whose settings are known and whose weights are not read yet."""

    folder: ModelFolder
    spec: Model
    resolver: Resolver
    machine: Machine
    kv_plan: KVPlan
    costs: WhatIf
    guessing: GuessingModel | None = None
    adapters: AdapterPlan | None = None
    files: SentenceFiles = field(default_factory=SentenceFiles)
    device: CudaDevice | None = None

    @property
    def name(self) -> str:
        """See `name_of`."""
        return name_of(self.folder)


@dataclass(eq=False)
class Heart:
    """A loaded engine without its shell."""

    stepper: Stepper
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
    scheduler: Scheduler
    grammars: GrammarCompiler
    costs: WhatIf
    guesser: Guesser
    adapters: AdapterShelf | None
    texts: Texts

    @property
    def session(self) -> Session:
        """Of the stepper."""
        return self.stepper.session

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
    folder = locate(
        model, resolver.asked_value("revision"), kept=kept_folder(resolver.asked_value("cache"), machine.cache_folder)
    )
    spec, files = read_for_task(resolver, folder.path, compared_heads_folder(resolver, machine))
    resolve_engine(resolver, ModelFacts(folder.source, folder.revision, spec, files.max_tokens), machine, best_level())
    settings = resolver.resolved()
    require_level(settings["cpu_level"])
    device = placing.choose_device(resolver, spec)
    context, sequences = settings["context"], settings["max_sequences"]
    spec = with_hidden(spec, settings)
    guessing = find_heads(settings, spec, folder) or _find_draft(resolver, spec, folder, machine)
    tables = len(cache_groups(spec.program).pages) * page_table_bytes(context, sequences)
    needs = MemoryNeeds(
        weight_bytes=spec.weight_bytes(format_choice(settings["weights"])),
        buffer_bytes=place(spec.program, settings["max_step_tokens"], sequences + GUESS_ROWS).num_bytes,
        caches=spec.cache_needs(kv_kind(settings["kv_format"]), context, sequences, settings["max_step_tokens"]),
        table_bytes=spec.rope_bytes(context) + tables,
        process_bytes=PROCESS_BYTES,
    )
    adapters = plan_adapters(resolver, spec)
    if adapters is not None:
        needs = adapters.added_to(needs, settings["max_step_tokens"], sequences)
        adapters.check_beside(guessing)
    if guessing is not None:
        needs = guessing.added_to(needs, settings)
    kv_plan = resolve_memory(resolver, placing.needs_on(device, needs, spec), placing.room_on(device, machine))
    kinds = kv_kind(settings["kv_format"])
    level, threads = settings["cpu_level"], settings["threads"]
    costs = costs_here(spec, settings["weights"], kinds, machine.cache_folder, level, threads)
    if objectives_of(settings).any:
        check_objectives(costs, objectives_of(settings))
        resolver.put("step_cost", "measured" if costs.measured else "guessed", costs.source)
    return Found(folder, spec, resolver, machine, kv_plan, costs, guessing, adapters, files, device)


def _find_draft(resolver: Resolver, spec: Model, folder: ModelFolder, machine: Machine) -> DraftModel | None:
    settings = resolver.resolved()
    name = draft_name(settings)
    if name is None:
        return None
    found = locate(name, kept=kept_folder(resolver.asked_value("cache"), machine.cache_folder))
    own = read_folder(found.path, compared_heads_folder(resolver, machine))
    kinds, level, threads = kv_kind(settings["kv_format"]), settings["cpu_level"], settings["threads"]
    draft = DraftModel(found, own, costs_here(own, settings["weights"], kinds, machine.cache_folder, level, threads))
    check_draft(draft, spec, folder.path)
    return draft


def resolve_all(model: str, options: Mapping[str, Any]) -> Resolved:
    """Every setting with its reason; no weights are read."""
    from twostroke.config import resolve_overload, resolve_server

    found = find_model(model, options)
    resolve_server(found.resolver, found.name)
    resolve_overload(found.resolver, found.kv_plan.tokens)
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
    tokenizer, generation = Tokenizer.from_folder(folder), read_generation_defaults(folder)
    texts = build_texts(spec, resolved["pooling"], found.files, tokenizer, folder)
    loaded = load(folder, spec, resolved, progress, report)
    weights, weights_check = loaded.weights, BackgroundCheck(loaded.file)
    device, closing = found.device, ExitStack()
    closing.callback(weights_check.close)
    ops = CpuOps(resolved["cpu_level"], resolved["threads"])
    closing.callback(ops.close)
    closing.callback(placing.closer_of(device))
    settler = placing.settler_on(device, weights, found.machine)
    closing.callback(settler.close)
    forward, memory, shelf = _forward_and_memory(found, weights, resolved, ops)
    backing = placing.backing_of(device, memory)
    closing.callback(backing.close)
    proposer, readers = _guessing(found, weights, memory, ops, report)
    runner = ModelRunner(forward, memory, time.perf_counter, RunDelay(), ops.weigh, readers)
    cache = cache_of(spec, found.kv_plan, backing.on_fresh_page)
    guesser = build_guesser(resolved, found.costs.now, proposer)
    scheduler = Scheduler(cache, scheduler_limits(resolved, spec), _policy(found, resolved), guesser)
    book = BeamBook(scheduler)
    ends = frozenset(generation.eos_token_ids) | frozenset(spec.eos_token_ids) | tokenizer.end_token_ids
    grammars = GrammarCompiler(tokenizer, spec.vocab_size, ends)
    closing.callback(grammars.close)
    ledger = Ledger(found.costs.now, _trace(resolved, found.costs, report, closing))
    session = Session(
        book,
        tokenizer,
        _limits(found, resolved, ends),
        draw_seed=lambda: secrets.randbits(63),
        sibling_seed=sibling_seed,
        observer=observer,
        grammars=grammars,
        ledger=ledger,
        adapters=shelf,
    )
    report_fault = _fault_report("engine fault", report)
    watched = runner if witness is None else WitnessedExecutor(runner, witness)
    executor = IsolatingExecutor(ColdSteps(watched, lambda: settler.moved_bytes + backing.backed_pages), report_fault)
    stepper = Stepper(
        book,
        executor,
        session,
        time.perf_counter,
        report_fault,
        probe=placing.probe_of(device, ops),
        require_sound=weights_check.require_sound,
    )
    weights_check.start()
    settler.start()
    backing.start()
    return Heart(
        stepper,
        tokenizer,
        ChatTemplate.from_folder(folder),
        spec,
        resolved,
        found.name,
        generation,
        settler,
        weights_check,
        Explainer(ledger, found.costs, _options(resolved)),
        closing,
        cache,
        scheduler,
        grammars,
        found.costs,
        guesser,
        shelf,
        texts,
    )


def _options(resolved: Resolved) -> Options:
    return Options(resolved["max_step_tokens"], resolved["max_sequences"], step_rule(resolved))


def _fault_report(what: str, report: Report) -> Callable[[BaseException], None]:
    return lambda error: report(f"{what}: {type(error).__name__}: {error}")


def _guessing(
    found: Found, weights: ModelWeights, memory: StepMemory, ops: CpuOps, report: Report
) -> tuple[Proposer | None, tuple[StepReader, ...]]:
    """What guesses beside the proposers that look up, and what reads hidden states for it."""
    resolved, guessing = found.resolver.resolved(), found.guessing
    told = _fault_report("fault of what guesses", report)
    if isinstance(guessing, MedusaModel):
        heads, rows = build_medusa(guessing, weights, memory, found.spec, ops, resolved)
        return medusa_proposer(heads, told), (rows,)
    if isinstance(guessing, EagleModel):
        pools = draft_pools(found.spec, found.kv_plan)
        eagle, history = build_eagle(guessing, weights, memory, ops, resolved, pools, told)
        return eagle, (history,)
    if isinstance(guessing, DraftModel):
        own_weights = load(guessing.folder.path, guessing.spec, resolved, None, report).weights
        pools = draft_pools(found.spec, found.kv_plan)
        return build_draft(guessing, own_weights, ops, resolved, pools, told), ()
    return None, ()


def build_sync(model: str, options: Mapping[str, Any], progress: Progress | None = None) -> BuiltSync:
    """A loaded engine with the plain loop's shell."""
    heart = build_heart(find_model(model, options), progress, print_report)
    return BuiltSync(**_fields(heart), engine=SyncEngine(heart.stepper))


def _forward_and_memory(
    found: Found, weights: ModelWeights, resolved: Resolved, ops: CpuOps
) -> tuple[Forward, StepMemory, AdapterShelf | None]:
    """The model's program, or that with places for adapters, where it runs; the arrays of its steps; the adapters."""
    pools, program, shelf = own_pools(found.spec, found.kv_plan), found.spec.program, None
    if found.adapters is not None:
        shelf, program = found.adapters.build(), found.adapters.program
        weights = shelf.beside(weights)
    memory = placing.memory_on(found.device, program, weights, pools, resolved)
    return placing.forward_on(found.device, ops, program, memory), memory, shelf


def _trace(resolved: Resolved, costs: WhatIf, report: Report, closing: ExitStack) -> Sink | None:
    if resolved["trace"] is None:
        return None
    file = RecordFile(Path(resolved["trace"]).expanduser(), costs.source, report)
    closing.callback(file.close)
    return file.write


def _limits(found: Found, resolved: Resolved, ends: frozenset[int]) -> EngineLimits:
    context, pools = resolved["context"], own_pools(found.spec, found.kv_plan)
    reach = (context, found.spec.vocab_size, longest_sequence(pools, context))
    return EngineLimits(*reach, ends, objectives_of(resolved), ways_of(resolved, found.spec), task=found.spec.task)


def _policy(found: Found, resolved: Resolved) -> Policy:
    """By order of arrival where nothing is promised."""
    guessed = not found.costs.measured
    if resolved["step_limiter"] == GAP_LIMITER:
        return arrival_policy(found.costs.now, GapRule(), PAGE_TOKENS, guessed)
    if not objectives_of(resolved).any:
        return ArrivalPolicy()
    limits = scheduler_limits(resolved, found.spec)
    return objective_policy(found.costs.now, objectives_of(resolved), limits, PAGE_TOKENS, guessed=guessed)


def print_report(sentence: str) -> None:
    """Warnings of library use go to standard error."""
    print(sentence, file=sys.stderr)


def _fields(heart: Heart) -> dict[str, Any]:
    return {name: getattr(heart, name) for name in Heart.__dataclass_fields__}
