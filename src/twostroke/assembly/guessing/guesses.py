"""Builds the objects that guess tokens (speculative decoding): proposers, the draft model where there is one, and the
limiter of how many guesses a step verifies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from twostroke.assembly.calibrated_keys import factors_beside, with_factors, with_rotation
from twostroke.assembly.folders import compared_heads_folder, locate
from twostroke.assembly.guessing.needs import draft_slots, needs_with
from twostroke.assembly.optional_heads import heads
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.engine_settings import DiskSettings
from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.resolver import Resolved, Resolver
from twostroke.cost.memory import MemoryNeeds
from twostroke.cost.shape import Segment, StepCost
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.speculate.acceptance import Acceptance
from twostroke.engine.speculate.draft import PROMPT_ROWS, DraftProposer
from twostroke.engine.speculate.finished import FinishedAnswers
from twostroke.engine.speculate.guess_limiter import GuessLimiter
from twostroke.engine.speculate.guesser import Guesser
from twostroke.engine.speculate.ngram import NgramProposer
from twostroke.engine.speculate.proposer import Proposer
from twostroke.engine.speculate.suffix import SuffixProposer
from twostroke.engine.speculate.timed import TimedProposer
from twostroke.engine.speculate.verify_time import VerifyTime
from twostroke.ops.program.model import Model
from twostroke.ops.program.program import Program
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.folder import read_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.tokenizer_file import tokenizer_bytes
from twostroke.types.cache_pools import CachePools
from twostroke.types.errors import ConfigError
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.types.speculate import DRAFT, LOADED, NO_WAYS, WAYS
from twostroke.weights.hub.hub import ModelFolder
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.cache_choice import kept_folder


class GuessingModel(Protocol):
    """A draft model, heads or draft layers, whose weights are not read yet."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that the draft model, the heads or the draft layers run."""

    def added_to(self, needs: MemoryNeeds, settings: Resolved) -> MemoryNeeds:
        """Returns the memory that the model and its draft or heads need together."""

    def input_bytes(self, settings: Resolved) -> int:
        """Returns the bytes on a GPU for the target model's hidden states, where this process copies them there as
        inputs of the draft."""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A draft model whose weights are not read yet. Satisfies `GuessingModel`."""

    folder: ModelFolder
    spec: Model

    @property
    def name(self) -> str:
        """The name of the draft model, as the user wrote it."""
        return self.folder.source

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.spec.program,)

    def input_bytes(self, settings: Resolved) -> int:
        return 0

    def rows(self, settings: Resolved) -> int:
        """The most rows that the draft model computes in one pass."""
        return max(PROMPT_ROWS, int(settings.steps.max_sequences))

    def context(self, settings: Resolved) -> int:
        """The longest text in tokens that the draft reads."""
        return min(int(settings.steps.context), self.spec.longest_context)

    def added_to(self, needs: MemoryNeeds, settings: Resolved) -> MemoryNeeds:
        """Returns the memory that model and draft need together. Each has room for as many tokens of K and V as the
        other. The draft's cache groups come after the model's."""
        weight_bytes = self.spec.weight_bytes(format_choice(settings.model.weights))
        return needs_with(needs, self.spec, weight_bytes, self.rows(settings), self.context(settings), settings)


def draft_name(settings: Resolved) -> str | None:
    """Returns MODEL of `--speculate draft:MODEL`; None for another way."""
    word, _, name = str(settings.guesses.speculate).partition(":")
    return name if word == DRAFT else None


def find_guessing(
    resolver: Resolver, spec: Model, folder: ModelFolder, machine: Machine
) -> tuple[Model, GuessingModel | None]:
    """Returns the target model (with hidden states as outputs if heads need them) and the draft model or heads."""
    settings = resolver.resolved()
    if settings.guesses.way not in LOADED:
        return spec, None
    spec = heads.with_hidden(spec, settings, folder)
    return spec, heads.find_heads(settings, spec, folder) or _find_draft(resolver, spec, folder, machine)


def _find_draft(resolver: Resolver, spec: Model, folder: ModelFolder, machine: Machine) -> DraftModel | None:
    settings = resolver.resolved()
    name = draft_name(settings)
    if name is None:
        return None
    found = locate(name, kept=kept_folder(resolver.asked_value(DiskSettings.cache), machine.cache_folder))
    own, kind = read_folder(found.path, compared_heads_folder(resolver, machine)), settings.cache.kind
    draft = DraftModel(found, with_rotation(with_factors(own, factors_beside(own, found.path, kind), kind), kind))
    check_draft(draft, spec, folder.path)
    return draft


def check_draft(draft: DraftModel, model: Model, model_folder: Path) -> None:
    """Raises ConfigError for a draft that cannot guess for this model."""
    sizes = draft.spec.vocab_size, model.vocab_size
    if sizes[0] != sizes[1] or not _same_tokens(draft.folder.path, model_folder, sizes[0]):
        counts = f"It has {sizes[0]:,} tokens, and the model {sizes[1]:,}."
        why = counts if sizes[0] != sizes[1] else "Some tokens differ."
        raise ConfigError(
            f"--speculate draft:{draft.name} names a model of another vocabulary.",
            why=why,
            fix="Use a smaller model of the same family, or --speculate auto, which needs no draft.",
        )


def ways_of(settings: Resolved, spec: Model) -> tuple[str, ...]:
    """Returns the values of `speculate` that a request may ask for, such as `ngram`. A model that generates no tokens
    has only `auto` and `off`."""
    if spec.task is not Task.GENERATE:
        return NO_WAYS
    way = settings.guesses.way
    return (*WAYS, way) if way in LOADED else WAYS


def build_guesser(settings: Resolved, cost: StepCost, computing: Proposer | None) -> Guesser:
    """Builds the guesser of an engine. computing: the proposer that runs a model, or None.

    The way `auto` is the way `suffix`: it finds all matches that `ngram` finds, and others.
    """
    ngram, suffix = (
        TimedProposer(each, time.perf_counter) for each in (NgramProposer(), SuffixProposer(FinishedAnswers()))
    )
    ways: dict[str, tuple[Proposer, ...]] = {
        "off": (),
        "auto": (suffix,),
        "ngram": (ngram,),
        "suffix": (suffix,),
    }
    if computing is not None:
        ways[computing.name] = (computing,)
    default = settings.guesses.way
    return Guesser(ways, default, GuessLimiter(VerifyTime(cost)), Acceptance())


def build_draft(
    draft: DraftModel,
    weights: ModelWeights,
    place: RunPlace,
    settings: Resolved,
    pools: CachePools,
    cost: StepCost,
    report: Callable[[Exception], None],
) -> DraftProposer:
    """Returns the proposer with the loaded draft model. pools: the sizes of the pools for the draft's K and V. cost:
    predicts the times of the draft's steps."""
    sequences, context = settings.steps.max_sequences, draft.context(settings)
    pools = replace(pools, state_slots=draft_slots(draft.spec, sequences))
    sizes = MemorySizes(pools.num_pages, context, draft.rows(settings), sequences, pools.state_slots)
    program, own, kind = draft.spec.program, place.weights(weights), settings.cache.kind
    memory = StepMemory(program, own.matrices, own.vectors, kind, sizes, place.memory)
    runner = place.runner(place.compiled(program, memory), memory, draft.spec.vocab_size)
    first_token_s = cost.predict([Segment.decode(context // 4)]).seconds
    cache = CacheManager(pools, PAGE_TOKENS)
    return DraftProposer(runner, cache, sequences, context, time.perf_counter, first_token_s, report)


def _same_tokens(draft: Path, model: Path, vocab_size: int) -> bool:
    """Returns whether both tokenizers write the same text for every token id."""
    if tokenizer_bytes(draft) == tokenizer_bytes(model):
        return True
    first, second = Tokenizer.from_folder(draft), Tokenizer.from_folder(model)
    return all(first.token_text(token_id) == second.token_text(token_id) for token_id in range(vocab_size))
