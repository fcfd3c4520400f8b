"""The one composition root: reads the settings, builds every object, and returns finished engines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from twostroke.assembly import caches
from twostroke.assembly import device as placing
from twostroke.assembly.caches import cache_of, draft_pools, longest_sequence, own_pools, step_memory
from twostroke.assembly.find import Found, find_model
from twostroke.assembly.folders import texts_of
from twostroke.assembly.grammars import GrammarsWhenAsked, Preparation, grammars_of
from twostroke.assembly.guessing.guesses import (
    DraftModel,
    build_draft,
    build_guesser,
    ways_of,
)
from twostroke.assembly.images.seeing import build_sight, tell_scheduler
from twostroke.assembly.optional import advice, verdict
from twostroke.assembly.optional_heads import ahead, disk, heads
from twostroke.assembly.place import RunPlace
from twostroke.assembly.processes import ranks
from twostroke.assembly.seeds import SEEDS
from twostroke.assembly.settings.config import step_rule
from twostroke.assembly.settings.resolver import Resolved
from twostroke.assembly.task import Texts, build_texts
from twostroke.assembly.weights import Progress, Report, begin_close, checked, load, load_named
from twostroke.backends.cpu import CpuOps
from twostroke.cost.history.ledger import Ledger, Sink
from twostroke.cost.what_if import WhatIf
from twostroke.engine.beams.book import BeamBook
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.cold_steps import ColdSteps
from twostroke.engine.core import nothing_before
from twostroke.engine.faults.isolate import IsolatingExecutor
from twostroke.engine.faults.witness import Witness
from twostroke.engine.limits import EngineLimits
from twostroke.engine.observer import Observer
from twostroke.engine.record_file import RecordFile
from twostroke.engine.resources import Resources
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.session import Session
from twostroke.engine.speculate.guesser import Guesser
from twostroke.engine.speculate.proposer import Proposer
from twostroke.engine.step_loop import StepLoop
from twostroke.engine.stepper import Stepper
from twostroke.engine.sync_engine import SyncEngine
from twostroke.ops.program.model import Model
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.forward import Forward
from twostroke.runner.hidden_rows import StepReader
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.stop_text import stop_text
from twostroke.text.talk.ends import turn_end_ids
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.first_use.made_once import made_once
from twostroke.types.reading.user_path import user_path
from twostroke.weights.generation import GenerationDefaults, read_generation_defaults
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.background_check import BackgroundCheck
from twostroke.weights.packed.settle import Settler

if TYPE_CHECKING:
    from twostroke.assembly.disk import DiskFacts
    from twostroke.cost.explain.verdict import Explainer
    from twostroke.engine.disk.disk_pages import DiskPages
    from twostroke.images.eyes import Eyes
    from twostroke.runner.adapters.shelf import AdapterShelf
    from twostroke.runner.images.image_encoder import ImageRows
    from twostroke.text.templates.chat_template import ChatTemplate


@dataclass(eq=False)
class Heart:
    """All objects of a loaded engine. The loop that calls its steps is not one of them: it belongs to SyncEngine, a
    server or a replica."""

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
    images: ImageRows | None
    disk: DiskPages | None

    @property
    def session(self) -> Session:
        """The session of this engine: it keeps the requests and turns their tokens into text."""
        return self.stepper.session

    @made_once
    def explainer(self) -> Explainer:
        """Returns an object that explains why requests of this engine took as long as they did."""
        steps = self.resolved.steps
        options = advice.Options(steps.max_step_tokens, steps.max_sequences, step_rule(steps))
        return verdict.Explainer(self.session.ledger, self.costs, options)

    @made_once
    def engine(self) -> SyncEngine:
        """Returns this engine with a synchronous loop, for use without a server."""
        return SyncEngine(self.stepper)

    @property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """The sampling values of generation_config.json, by the names of SamplingParams."""
        return self.generation.sampling

    def close(self) -> None:
        """Ends the engine's background threads, and closes its files and its memory."""
        self.closing.close()

    def __enter__(self) -> Heart:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def build_heart(
    found: Found,
    progress: Progress | None,
    report: Report,
    observer: Observer | None = None,
    witness: Witness | None = None,
    preparation: Preparation = GrammarsWhenAsked,
) -> Heart:
    """Loads the weights and builds the engine. report: writes a warning for people. witness: records which requests
    each step computes. preparation: how the engine prepares for grammars. Raises TwostrokeError."""
    resolved, spec, folder = found.resolver.resolved(), found.spec, found.folder.path
    tokenizer, template = texts_of(found.resolver, folder)
    device, closing, generation = found.device, ExitStack(), read_generation_defaults(folder)
    ends = frozenset({*generation.eos_token_ids, *spec.eos_token_ids}) | tokenizer.end_token_ids
    ends |= turn_end_ids(template, tokenizer)
    grammars, grammars_ahead = grammars_of(tokenizer, spec.vocab_size, ends, closing, preparation)
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
    encoding = place if found.sight is None else ranks.encoding_place(found.places, place, closing)
    eyes, images = build_sight(found.sight, resolved, found.machine, encoding, memory, found.programs, closing)
    runner = place.executor(forward, memory, spec.vocab_size, readers, resolved.device.early_steps == "on", images)
    is_short = placing.shortage_of(device, found.resolver, found.machine, loaded.weights, settler)
    cache = cache_of(spec, found.kv_plan, backing.on_fresh_page, is_short)
    guesser = build_guesser(resolved, found.costs.now, proposer)
    scheduler = caches.scheduler_of(cache, resolved, spec, found.costs, guesser, ranks.plans_of(found.places))
    tell_scheduler(scheduler, images, found.costs.now)
    book = BeamBook(scheduler, partial(stop_text, tokenizer))
    ledger = Ledger(found.costs.now, _trace(resolved, found.costs, report, closing))
    report_fault = _fault_report("engine fault", report)
    rows = None if images is None else images.rows
    watched, flight = ranks.executor_of(runner, group, witness, rows)
    executor = IsolatingExecutor(ColdSteps(watched, lambda: settler.moved_bytes + backing.backed_pages), report_fault)
    facts = _disk_facts(found, weights_check)
    pages = None if facts is None else disk.build_disk(facts, cache, memory, executor, report, closing)
    kept = None if pages is None else disk.DiskBook(book, pages, ledger.read_back)
    session = Session(
        kept or book,
        tokenizer,
        _limits(found, resolved, ends),
        seeds=SEEDS,
        observer=observer,
        ledger=ledger,
        resources=Resources(grammars, shelf),
    )
    before = nothing_before if kept is None else kept.before_step
    loop = StepLoop(kept or book, executor, time.perf_counter, report_fault, place.probe, flight, before)
    begin_close(found.machine, weights_check, settler, backing, grammars_ahead)
    return Heart(
        stepper=Stepper(loop, session, ranks.sound_with(weights_check.require_sound, group), ranks.alarm_of(group)),
        tokenizer=tokenizer,
        template=template,
        spec=spec,
        resolved=resolved,
        model_name=found.name,
        generation=generation,
        settler=settler,
        weights_check=weights_check,
        closing=closing,
        cache=cache,
        memory=memory,
        scheduler=scheduler,
        grammars=grammars,
        costs=found.costs,
        guesser=guesser,
        adapters=shelf,
        texts=build_texts(spec, resolved.task.pooling, found.files, tokenizer, folder),
        eyes=eyes,
        images=rows,
        disk=pages,
    )


def _disk_facts(found: Found, check: BackgroundCheck) -> DiskFacts | None:
    """Returns the facts that the disk cache needs to be a source of pages; None where no disk cache is asked for."""
    resolved, spec = found.resolver.resolved(), found.spec
    if not resolved.disk.kv_disk:
        return None
    files, pools = None if found.sight is None else found.sight.files, own_pools(spec, found.kv_plan)
    return disk.DiskFacts(found.folder.path, spec, resolved, pools, found.costs.now, check.trusted, files)


def _fault_report(what: str, report: Report) -> Callable[[BaseException], None]:
    return lambda error: report(f"{what}: {type(error).__name__}: {error}")


def _guessing(
    found: Found, weights: ModelWeights, memory: StepMemory, place: RunPlace, report: Report, closing: ExitStack
) -> tuple[Proposer | None, tuple[StepReader, ...]]:
    """Returns the proposer that computes guesses with a draft model, heads or layers, and its readers of hidden states.
    Returns None and no readers for other ways to guess, whose proposers are built elsewhere."""
    resolved, guessing, pools = found.resolver.resolved(), found.guessing, draft_pools(found.spec, found.kv_plan)
    told = _fault_report("fault of what guesses", report)
    if guessing is None:
        return None, ()
    if isinstance(guessing, DraftModel):
        own = load(guessing.folder.path, guessing.spec, resolved, found.machine, None, report)
        checked(own, report, closing).start()  # a failed check ends nothing: wrong guesses change no answer
        costs = placing.costs_for(found.device, found.machine, resolved)(guessing.spec)
        return build_draft(guessing, own.weights, place, resolved, pools, costs.now, told), ()
    if isinstance(guessing, heads.MedusaModel):
        made, rows = heads.build_medusa(guessing, weights, memory, found.spec, place, resolved)
        return heads.medusa_proposer(made, told), (rows,)
    if isinstance(guessing, ahead.AheadModel):
        proposer, history = ahead.build_ahead(guessing, weights, memory, place, resolved, pools, told)
        return proposer, (history,)
    return None, ()


def build_sync(model: str, options: Mapping[str, Any], progress: Progress | None = None) -> Heart:
    """Loads a model for use without a server, and returns the engine's objects."""
    return build_heart(find_model(model, options), progress, print_report)


def _forward_and_memory(
    found: Found, weights: ModelWeights, resolved: Resolved, place: RunPlace, group: ranks.StartedGroup | None
) -> tuple[Forward, StepMemory, AdapterShelf | None]:
    """Returns the program compiled for the device that runs it, the arrays of its steps, and the shelf of adapters or
    None. With adapters, the program also computes adapters."""
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
    file = RecordFile(user_path(resolved.disk.trace), costs.source, report)
    closing.callback(file.close)
    return file.write


def _limits(found: Found, resolved: Resolved, ends: frozenset[int]) -> EngineLimits:
    context, pools = resolved.steps.context, own_pools(found.spec, found.kv_plan)
    reach = (context, found.spec.vocab_size, longest_sequence(pools, context))
    return EngineLimits(*reach, ends, resolved.steps.objectives, ways_of(resolved, found.spec), task=found.spec.task)


def print_report(sentence: str) -> None:
    """Prints a warning to standard error. An engine without a server reports in this way."""
    print(sentence, file=sys.stderr)
