"""Finds everything about a model that is known before its weights are read: folder, settings, memory, and costs of
steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from twostroke.assembly import device as placing
from twostroke.assembly.adapters import AdapterPlan, plan_adapters
from twostroke.assembly.caches import needs_of
from twostroke.assembly.calibrated_keys import with_calibrated_keys
from twostroke.assembly.cost_here import check_objectives
from twostroke.assembly.folders import calibrated, compared_heads_folder, locate, name_of
from twostroke.assembly.guessing.guesses import DraftModel, GuessingModel, find_guessing
from twostroke.assembly.images.seeing import plan_sight
from twostroke.assembly.processes import ranks
from twostroke.assembly.settings.config import (
    ModelFacts,
    require_encoder_room,
    resolve_encoder_memory,
    resolve_engine,
    resolve_memory,
    resolve_overload,
    resolve_server,
    tell_whole_images,
)
from twostroke.assembly.settings.engine_settings import (
    DeviceSettings,
    DiskSettings,
    ModelSettings,
    RankSettings,
    StepSettings,
)
from twostroke.assembly.settings.env import Machine, asked_by_environment, read_machine
from twostroke.assembly.settings.kv_disk import resolve_kv_disk, why_no_disk
from twostroke.assembly.settings.resolver import Resolved, Resolver, collect
from twostroke.assembly.task import read_for_task
from twostroke.backends.cpu import best_level, require_level
from twostroke.cost.memory import KVPlan
from twostroke.cost.what_if import WhatIf
from twostroke.ops.program.model import Model
from twostroke.ops.program.program import Program
from twostroke.runner.folder import read_headers
from twostroke.runner.retrieval.sentence_files import SentenceFiles
from twostroke.types.errors import ConfigError
from twostroke.weights.hub.hub import ModelFolder
from twostroke.weights.packed.cache_choice import kept_folder

if TYPE_CHECKING:
    from twostroke.assembly.images.sight import SightPlan
    from twostroke.backends.cuda import CudaDevice


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
        """The part of the model that this process computes."""
        return self.spec if self.places is None else self.places.division.own(self.spec)

    @property
    def programs(self) -> tuple[Program, Program]:
        """The program of the whole model, and the program of the part that this process computes."""
        if self.adapters is not None:
            return self.adapters.program, self.adapters.program
        return self.spec.program, self.part.program

    @property
    def name(self) -> str:
        """The model's name for messages: the embedded model's name, or the last part of the folder or hub id."""
        return name_of(self.folder)


class FoundEncoder(Struct, frozen=True):
    """The image encoder of a model, whose settings are known and whose weights are not read yet. spec: the language
    model, whose weights are never read."""

    folder: ModelFolder
    spec: Model
    resolver: Resolver
    machine: Machine
    sight: SightPlan

    @property
    def name(self) -> str:
        """The model's name for messages: the embedded model's name, or the last part of the folder or hub id."""
        return name_of(self.folder)


class _Located(Struct, frozen=True):
    """A model's folders on this machine. named: the folder of the model that the user named. folder: the folder from
    which weights are read, which may be one that `twostroke quantize` wrote. kept: the cache folder."""

    machine: Machine
    kept: Path | None
    named: ModelFolder
    folder: ModelFolder


def _located(model: str, resolver: Resolver, asked: ranks.RankPlaces | None) -> _Located:
    """Locates the folder of the model, and the folder of its calibrated weights where there is one. asked: the division
    of the model among processes; such a model is read without calibrated weights."""
    machine = read_machine() if asked is None else asked.share_of(read_machine())
    kept = kept_folder(resolver.asked_value(DiskSettings.cache), machine.cache_folder)
    named = locate(model, resolver.asked_value(ModelSettings.revision), kept=kept)
    folder = calibrated(resolver, named, kept) if asked is None else named  # other machines have no calibration result
    return _Located(machine, kept, named, folder)


def _resolve_engine(resolver: Resolver, place: _Located, spec: Model, text_tokens: int | None) -> None:
    facts = ModelFacts(place.folder.source, place.folder.revision, spec, text_tokens)
    resolve_engine(resolver, facts, place.machine, best_level())
    require_level(resolver.resolved().cpu.cpu_level)


def find_encoder(model: str, options: Mapping[str, Any]) -> FoundEncoder:
    """Finds the model's image encoder, and plans memory for the encoder alone. Raises TwostrokeError."""
    resolver = Resolver(collect(options, asked_by_environment()))
    given = resolver.first_asked(DeviceSettings.device, RankSettings.tensor_parallel, RankSettings.pipeline_parallel)
    if given is not None and resolver.asked_value(given) not in (1, "cpu", "auto"):
        raise ConfigError(
            f"--role encode and {resolver.source_of(given)} cannot be together.",
            why="An encoder of images runs on the processor of one process.",
            fix="Leave one of them out.",
        )
    found = _located(model, resolver, None)
    spec = read_headers(found.folder.path)
    _resolve_engine(resolver, found, spec, None)
    resolver.put(StepSettings.max_step_tokens, sys.maxsize, "no prompt is computed here")
    spec, plan = plan_sight(resolver, spec, found.folder.path, pieces=False)
    if plan is None:
        raise ConfigError(
            "--role encode cannot be used here.",
            why="The model reads no images here; `twostroke config` prints why.",
            fix="Leave --role out.",
        )
    resolve_encoder_memory(resolver, plan.needs(resolver.resolved()), found.machine)
    return FoundEncoder(found.folder, spec, resolver, found.machine, plan)


def find_model(model: str, options: Mapping[str, Any]) -> Found:
    """Resolves all settings of the engine, including memory, and downloads the model where `model` is a hub id.
    Settings of a server are not resolved here. Raises TwostrokeError."""
    resolver = Resolver(collect(options, asked_by_environment()))
    asked = ranks.asked_division(resolver)
    division = None if asked is None else asked.division
    found = _located(model, resolver, asked)
    machine, kept, named, folder = found.machine, found.kept, found.named, found.folder
    spec, files = read_for_task(resolver, folder.path, compared_heads_folder(resolver, machine))
    _resolve_engine(resolver, found, spec, files.max_tokens)
    settings = resolver.resolved()
    device = placing.choose_device(resolver, spec)
    sequences = settings.steps.max_sequences
    spec = with_calibrated_keys(spec, named.path, resolver)
    spec, guessing = find_guessing(resolver, spec, folder, machine)
    device = placing.able_to_guess(device, guessing, resolver)
    reads_steps = guessing is not None and not isinstance(guessing, DraftModel)
    pieces = device is None and asked is None and not reads_steps
    spec, seeing = plan_sight(resolver, spec, folder.path, pieces=pieces)
    placing.settle_early_steps(device, spec, guessing, resolver)
    needs = needs_of(spec, [spec] if division is None else division.parts(spec), settings)
    adapters = plan_adapters(resolver, spec)
    if adapters is not None:
        needs = adapters.added_to(needs, settings.steps.max_step_tokens, sequences)
        adapters.check_beside(guessing)
    if guessing is not None:
        needs = guessing.added_to(needs, settings)
    room = machine
    if seeing is not None and device is None:
        own = needs if division is None else needs_of(spec, [division.own(spec)], settings)
        alone, needs = needs, seeing.added_to(needs, own, resolver.resolved())
        more = needs.fixed_bytes - alone.fixed_bytes
        room = ranks.room_beside(asked, machine, seeing.whole_bytes(resolver.resolved()), more)
    elif seeing is not None:
        require_encoder_room(resolver, seeing.needs(resolver.resolved()), machine)
    kv_plan = resolve_memory(
        resolver, placing.needs_on(device, needs, spec, settings, guessing), placing.room_on(device, room)
    )
    shared = {"whole_prompts": spec.whole_prompts, "divided": asked is not None, "guessed": guessing is not None}
    resolve_kv_disk(resolver, why_no_disk(**shared, on_device=device is not None), kept)
    whole = spec if adapters is None else adapters.counted
    counted = whole if division is None else division.counted(whole)
    costs = placing.costs_for(device, machine, settings)(counted)
    if settings.steps.objectives.any:
        check_objectives(costs, settings.steps.objectives)
        resolver.put(StepSettings.step_cost, "measured" if costs.measured else "guessed", costs.source)
    if seeing is not None and seeing.together:
        seconds = seeing.span_s(spec, costs.now, settings.steps.max_step_tokens)
        tell_whole_images(resolver, seeing.most_rows, seconds, in_pieces=seeing.kept_bytes > 0)
    asked = ranks.seeing_places(resolver, asked, seeing, spec)
    return Found(folder, spec, resolver, machine, kv_plan, costs, guessing, adapters, files, device, asked, seeing)


def resolve_all(model: str, options: Mapping[str, Any]) -> Resolved:
    """Returns every setting with its reason. No weights are read."""
    found = find_model(model, options)
    resolve_server(found.resolver, found.name)
    resolve_overload(found.resolver, found.kv_plan.tokens)
    return found.resolver.resolved()
