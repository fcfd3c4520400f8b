"""The one composition root: reads what was asked, builds every object, hands out finished engines."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from twostroke.assembly import caches, ranks
from twostroke.assembly import device as placing
from twostroke.assembly.adapters import AdapterPlan, plan_adapters
from twostroke.assembly.caches import cache_of, draft_pools, longest_sequence, needs_of, own_pools, step_memory
from twostroke.assembly.calibrated_keys import with_calibrated_keys
from twostroke.assembly.cost_here import check_objectives
from twostroke.assembly.folders import calibrated, compared_heads_folder, locate, name_of, texts_of
from twostroke.assembly.grammars import grammars_of
from twostroke.assembly.guesses import (
    DraftModel,
    GuessingModel,
    build_draft,
    build_guesser,
    find_guessing,
    ways_of,
)
from twostroke.assembly.optional import advice, verdict
from twostroke.assembly.optional_heads import ahead, disk, heads
from twostroke.assembly.place import RunPlace
from twostroke.assembly.seeing import build_sight, plan_sight
from twostroke.assembly.settings.config import ModelFacts, resolve_engine, resolve_memory, step_rule
from twostroke.assembly.settings.engine_settings import DiskSettings, ModelSettings, StepSettings
from twostroke.assembly.settings.env import Machine, asked_by_environment, read_machine
from twostroke.assembly.settings.kv_disk import resolve_kv_disk, why_no_disk
from twostroke.assembly.settings.resolver import Resolved, Resolver, collect
from twostroke.assembly.task import Texts, build_texts, read_for_task
from twostroke.assembly.weights import Progress, Report, begin_close, checked, load, load_named
from twostroke.backends.cpu import CpuOps, best_level, require_level
from twostroke.cost.history.ledger import Ledger, Sink
from twostroke.cost.memory import KVPlan
from twostroke.cost.what_if import WhatIf
from twostroke.engine.beams.book import BeamBook
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cold_steps import ColdSteps
from twostroke.engine.core import nothing_before
from twostroke.engine.isolate import IsolatingExecutor
from twostroke.engine.limits import EngineLimits
from twostroke.engine.observer import Observer
from twostroke.engine.record_file import RecordFile
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.session import Session
from twostroke.engine.speculate.guesser import Guesser
from twostroke.engine.speculate.proposer import Proposer
from twostroke.engine.stepper import Stepper
from twostroke.engine.sync_engine import SyncEngine
from twostroke.engine.witness import Witness
from twostroke.ops.program.model import Model
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.forward import Forward
from twostroke.runner.hidden_rows import StepReader
from twostroke.runner.retrieval.sentence_files import SentenceFiles
from twostroke.runner.sampling.random_draw import sibling_seed
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.stop_text import stop_text
from twostroke.text.talk.ends import turn_end_ids
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.made_once import made_once
from twostroke.weights.generation import GenerationDefaults, read_generation_defaults
from twostroke.weights.hub.hub import ModelFolder
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.background_check import BackgroundCheck
from twostroke.weights.packed.cache import kept_folder
from twostroke.weights.packed.settle import Settler

if TYPE_CHECKING:
    from twostroke.assembly.sight import SightPlan
    from twostroke.backends.cuda import CudaDevice
    from twostroke.cost.explain.verdict import Explainer
    from twostroke.engine.disk.disk_pages import DiskPages
    from twostroke.engine.executor import Executor
    from twostroke.images.eyes import Eyes
    from twostroke.runner.adapters.shelf import AdapterShelf
    from twostroke.text.chat_template import ChatTemplate


@dataclass(frozen=True)
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
    places: ranks.RankPlaces | None = None
    sight: SightPlan | None = None

    @property
    def part(self) -> Model:
        """What this process computes of the model."""
        return self.spec if self.places is None else self.places.division.own(self.spec)

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
    closing: ExitStack
    cache: CacheManager
    memory: StepMemory
    scheduler: Scheduler
    grammars: GrammarCompiler
    costs: WhatIf
    guesser: Guesser
    adapters: AdapterShelf | None
    texts: Texts
    eyes: Eyes | None
    disk: DiskPages | None

    @property
    def session(self) -> Session:
        """The stepper's session."""
        return self.stepper.session

    @made_once
    def explainer(self) -> Explainer:
        """Says why requests of this engine took as long as they did."""
        steps = self.resolved.steps
        options = advice.Options(steps.max_step_tokens, steps.max_sequences, step_rule(steps))
        return verdict.Explainer(self.session.ledger, self.costs, options)

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
    """A heart with the shell of the plain loop."""

    engine: SyncEngine


def find_model(model: str, options: Mapping[str, Any]) -> Found:
    """Resolve everything up to memory; downloads where `model` is a hub id. Raises TwostrokeError."""
    resolver = Resolver(collect(options, asked_by_environment()))
    asked = ranks.asked_division(resolver)
    division = None if asked is None else asked.division
    machine = read_machine() if asked is None else asked.share_of(read_machine())
    kept = kept_folder(resolver.asked_value(DiskSettings.cache), machine.cache_folder)
    named = locate(model, resolver.asked_value(ModelSettings.revision), kept=kept)
    folder = calibrated(resolver, named, kept) if asked is None else named  # other machines have no such result
    spec, files = read_for_task(resolver, folder.path, compared_heads_folder(resolver, machine))
    resolve_engine(resolver, ModelFacts(folder.source, folder.revision, spec, files.max_tokens), machine, best_level())
    settings = resolver.resolved()
    require_level(settings.cpu.cpu_level)
    device = placing.choose_device(resolver, spec)
    sequences = settings.steps.max_sequences
    spec = with_calibrated_keys(spec, named.path, resolver)
    spec, guessing = find_guessing(resolver, spec, folder, machine)
    device = placing.able_to_guess(device, guessing, resolver)
    placing.settle_early_steps(device, spec, guessing, resolver)
    spec, seeing = plan_sight(resolver, spec, folder.path, alone=device is None and asked is None)
    needs = needs_of(spec, [spec] if division is None else division.parts(spec), settings)
    adapters = plan_adapters(resolver, spec)
    if adapters is not None:
        needs = adapters.added_to(needs, settings.steps.max_step_tokens, sequences)
        adapters.check_beside(guessing)
    if guessing is not None:
        needs = guessing.added_to(needs, settings)
    if seeing is not None:
        needs = seeing.added_to(needs, resolver.resolved())
    kv_plan = resolve_memory(
        resolver, placing.needs_on(device, needs, spec, settings, guessing), placing.room_on(device, machine)
    )
    shared = {"whole_prompts": spec.whole_prompts, "divided": asked is not None, "guessed": guessing is not None}
    resolve_kv_disk(resolver, why_no_disk(**shared, on_device=device is not None), kept)
    whole = spec if adapters is None else adapters.counted
    counted = whole if division is None else division.counted(whole)
    costs = placing.costs_for(device, machine, settings)(counted)
    if settings.steps.objectives.any:
        check_objectives(costs, settings.steps.objectives)
        resolver.put(StepSettings.step_cost, "measured" if costs.measured else "guessed", costs.source)
    return Found(folder, spec, resolver, machine, kv_plan, costs, guessing, adapters, files, device, asked, seeing)


def resolve_all(model: str, options: Mapping[str, Any]) -> Resolved:
    """Every setting with its reason; no weights are read."""
    from twostroke.assembly.settings.config import resolve_overload, resolve_server

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
    *,
    serving: bool = False,
) -> Heart:
    """Load the weights and put the engine together. serving: see `grammars_of`. Raises TwostrokeError."""
    resolved, spec, folder = found.resolver.resolved(), found.spec, found.folder.path
    tokenizer, template = texts_of(found.resolver, folder)
    device, closing, generation = found.device, ExitStack(), read_generation_defaults(folder)
    ends = frozenset({*generation.eos_token_ids, *spec.eos_token_ids}) | tokenizer.end_token_ids
    ends |= turn_end_ids(template, tokenizer)
    grammars = grammars_of(tokenizer, spec.vocab_size, ends, closing, serving=serving)
    group = ranks.start_ranks(found.places, folder, spec, resolved, found.kv_plan, found.machine, closing)
    loaded = load_named(found.folder, found.part, resolved, found.machine, progress, report)
    weights_check = checked(loaded, report, closing)
    place = RunPlace(CpuOps(resolved.cpu.cpu_level, resolved.cpu.threads, resolved.cpu.cpus), device)
    closing.callback(place.close)
    settler = placing.settler_on(device, loaded.weights, found.machine)
    closing.callback(settler.close)
    weights = place.weights(loaded.weights)
    forward, memory, shelf = _forward_and_memory(found, weights, resolved, place, group)
    backing = placing.backing_of(device, memory)
    closing.callback(backing.close)
    proposer, readers = _guessing(found, weights, memory, place, report, closing)
    program = spec.program if found.adapters is None else found.adapters.program
    eyes, images = build_sight(found.sight, resolved, found.machine, place, memory, program, closing)
    runner = place.executor(forward, memory, spec.vocab_size, readers, resolved.device.early_steps == "on", images)
    cache = cache_of(spec, found.kv_plan, backing.on_fresh_page)
    guesser = build_guesser(resolved, found.costs.now, proposer)
    scheduler = caches.scheduler_of(cache, resolved, spec, found.costs, guesser, ranks.plans_of(found.places))
    scheduler.images.cost = None if found.sight is None else found.sight.cost(resolved, found.machine)
    book = BeamBook(scheduler, partial(stop_text, tokenizer))
    ledger = Ledger(found.costs.now, _trace(resolved, found.costs, report, closing))
    report_fault = _fault_report("engine fault", report)
    watched, flight = ranks.executor_of(runner, group, witness)
    executor = IsolatingExecutor(ColdSteps(watched, lambda: settler.moved_bytes + backing.backed_pages), report_fault)
    pages = _disk(found, weights_check, (cache, memory, executor), report, closing)
    kept = None if pages is None else disk.DiskBook(book, pages, ledger.read_back)
    session = Session(
        kept or book,
        tokenizer,
        _limits(found, resolved, ends),
        draw_seed=lambda: secrets.randbits(63),
        sibling_seed=sibling_seed,
        observer=observer,
        grammars=grammars,
        ledger=ledger,
        adapters=shelf,
    )
    stepper = Stepper(
        *(kept or book, executor, session, time.perf_counter, report_fault),
        probe=place.probe,
        require_sound=ranks.sound_with(weights_check.require_sound, group),
        alarm=ranks.alarm_of(group),
        flight=flight,
        before=nothing_before if kept is None else kept.before_step,
    )
    begin_close(found.machine, weights_check, settler, backing)
    return Heart(
        *(stepper, tokenizer, template, spec, resolved, found.name),
        *(generation, settler, weights_check, closing),
        cache,
        memory,
        scheduler,
        grammars,
        found.costs,
        guesser,
        shelf,
        build_texts(spec, resolved.task.pooling, found.files, tokenizer, folder),
        eyes,
        pages,
    )


def _disk(
    found: Found,
    check: BackgroundCheck,
    own: tuple[CacheManager, StepMemory, Executor],
    report: Report,
    closing: ExitStack,
) -> DiskPages | None:
    """The disk as a source of pages, where it is asked for."""
    resolved, spec = found.resolver.resolved(), found.spec
    if not resolved.disk.kv_disk:
        return None
    files, pools = None if found.sight is None else found.sight.files, own_pools(spec, found.kv_plan)
    facts = disk.DiskFacts(found.folder.path, spec, resolved, pools, found.costs.now, check.trusted, files)
    return disk.build_disk(facts, *own, report, closing)


def _fault_report(what: str, report: Report) -> Callable[[BaseException], None]:
    return lambda error: report(f"{what}: {type(error).__name__}: {error}")


def _guessing(
    found: Found, weights: ModelWeights, memory: StepMemory, place: RunPlace, report: Report, closing: ExitStack
) -> tuple[Proposer | None, tuple[StepReader, ...]]:
    """What guesses next to the proposers that look up, and what reads hidden states for it."""
    resolved, guessing, pools = found.resolver.resolved(), found.guessing, draft_pools(found.spec, found.kv_plan)
    told = _fault_report("fault of what guesses", report)
    if guessing is None:
        return None, ()
    if isinstance(guessing, DraftModel):
        own = load(guessing.folder.path, guessing.spec, resolved, found.machine, None, report)
        checked(own, report, closing).start()  # what it finds ends nothing: wrong guesses change no answer
        costs = placing.costs_for(found.device, found.machine, resolved)(guessing.spec)
        return build_draft(guessing, own.weights, place, resolved, pools, costs.now, told), ()
    if isinstance(guessing, heads.MedusaModel):
        made, rows = heads.build_medusa(guessing, weights, memory, found.spec, place, resolved)
        return heads.medusa_proposer(made, told), (rows,)
    if isinstance(guessing, ahead.AheadModel):
        proposer, history = ahead.build_ahead(guessing, weights, memory, place, resolved, pools, told)
        return proposer, (history,)
    return None, ()


def build_sync(model: str, options: Mapping[str, Any], progress: Progress | None = None) -> BuiltSync:
    """A loaded engine with the plain loop's shell."""
    heart = build_heart(find_model(model, options), progress, print_report)
    return BuiltSync(**_fields(heart), engine=SyncEngine(heart.stepper))


def _forward_and_memory(
    found: Found, weights: ModelWeights, resolved: Resolved, place: RunPlace, group: ranks.StartedGroup | None
) -> tuple[Forward, StepMemory, AdapterShelf | None]:
    """The model's program, or that with places for adapters, where it runs; the arrays of its steps; the adapters."""
    pools, part, program, shelf = own_pools(found.spec, found.kv_plan), found.part, found.part.program, None
    if found.adapters is not None:
        shelf, program = found.adapters.build(place.memory), found.adapters.program
        weights = shelf.beside(weights)
    memory = step_memory(program, weights, pools, resolved, place.memory, part.groups)
    forward = place.compiled(program, memory)
    return forward if group is None else group.lead(forward, place.ops), memory, shelf


def _trace(resolved: Resolved, costs: WhatIf, report: Report, closing: ExitStack) -> Sink | None:
    if resolved.disk.trace is None:
        return None
    file = RecordFile(Path(resolved.disk.trace).expanduser(), costs.source, report)
    closing.callback(file.close)
    return file.write


def _limits(found: Found, resolved: Resolved, ends: frozenset[int]) -> EngineLimits:
    context, pools = resolved.steps.context, own_pools(found.spec, found.kv_plan)
    reach = (context, found.spec.vocab_size, longest_sequence(pools, context))
    return EngineLimits(*reach, ends, resolved.steps.objectives, ways_of(resolved, found.spec), task=found.spec.task)


def print_report(sentence: str) -> None:
    """Warnings of library use go to standard error."""
    print(sentence, file=sys.stderr)


def _fields(heart: Heart) -> dict[str, Any]:
    return {name: getattr(heart, name) for name in Heart.__dataclass_fields__}
