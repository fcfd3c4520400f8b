"""Loads draft layers, which guess tokens ahead of the model from its hidden states (MTP, EAGLE), and builds their
proposer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from twostroke.assembly.guessing.heads_files import load_heads
from twostroke.assembly.guessing.needs import needs_with
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.resolver import Resolved
from twostroke.cost.memory import MemoryNeeds
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.speculate.ahead import AheadProposer
from twostroke.engine.speculate.draft import PROMPT_ROWS, DraftExecutor, DraftProposer
from twostroke.models.common.blocks.heads.ahead import AheadProgram
from twostroke.ops.operands import F32Array
from twostroke.ops.program.hidden import LastHidden, last_hidden
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value, Vector, Weight
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.runner.ahead import AheadExecutor, HiddenHistory
from twostroke.runner.ahead_layers import BoundLayer, LayersExecutor
from twostroke.runner.own_vocabulary import OwnVocabulary
from twostroke.types.cache_pools import CachePools
from twostroke.types.errors import ConfigError
from twostroke.types.request import Request
from twostroke.types.spec.formats import PAGE_TOKENS
from twostroke.weights.loaded import ModelWeights

FIRST_TOKEN_S = 1e-3
"""The assumed cost of one guessed token in seconds, until calls are measured."""
NORMS = ("rms_norm", "layer_norm")


class AheadLayer(NamedTuple):
    """One draft layer. made: its program. spec: the layer as a model, with all its weights. own: the same model without
    the weights that are the target model's too; these are not loaded again."""

    made: AheadProgram
    spec: Model
    own: Model


@dataclass(frozen=True, slots=True)
class AheadModel:
    """Draft layers whose weights are not read yet: one layer that continues from its own outputs, or several layers
    that are used once each in turn. way: the way to speculate, in the user's words. file: the file in the folder; None
    where the folder itself is the checkpoint.

    read: the hidden states of the target model that the first layer reads. enter: a call, such as a norm, that makes
    the layer's input from these hidden states. At run time it gets its input and its result from the draft; its other
    operands are weights and numbers. tokens: for each token of the layer's head, the target model's token id; empty
    where both have the same ids. Satisfies `GuessingModel`.
    """

    way: str
    folder: Path
    file: str | None
    layers: tuple[AheadLayer, ...]
    read: tuple[Value, ...]
    enter: Op
    tokens: tuple[int, ...] = ()

    @property
    def programs(self) -> tuple[Program, ...]:
        return tuple(layer.made.program for layer in self.layers)

    @property
    def width(self) -> int:
        """The number of floats that the draft layers read from the target model's hidden states for each position."""
        return sum(value.width for value in self.read)

    def input_bytes(self, settings: Resolved) -> int:
        return 4 * self.rows(settings) * self.width

    def rows(self, settings: Resolved) -> int:
        """The most rows that a draft layer computes in one pass."""
        return max(PROMPT_ROWS, int(settings.steps.max_sequences))

    def added_to(self, needs: MemoryNeeds, settings: Resolved) -> MemoryNeeds:
        """Returns the memory that the target model and the draft layers need together."""
        for layer in self.layers:
            weight_bytes = layer.own.weight_bytes(format_choice(settings.model.weights))
            needs = needs_with(needs, layer.spec, weight_bytes, self.rows(settings), settings.steps.context, settings)
        return needs


def embedding_and_norm(spec: Model, option: str) -> tuple[Weight, Op, LastHidden]:
    """Returns the parts of a target model that draft layers read: the embedding, the last norm and the last hidden
    state. option: the user's option, for the message. Raises ConfigError where the model lacks one of these parts."""
    hidden = last_hidden(spec.program)
    tables = [call for call in spec.program.body if call.NAME == "embed"]
    embedding = next((item for call in tables for item in call.operands() if isinstance(item, Weight)), None)
    if embedding is None or hidden.norm is None or hidden.norm.NAME not in NORMS:
        raise ConfigError(
            f"{option} is not possible with this model.",
            why="The layer reads hidden states after one last norm, and rows of one embedding.",
            fix="Use --speculate auto.",
        )
    return embedding, hidden.norm, hidden


def models_of(
    made: AheadProgram, spec: Model, name: str, ignored: tuple[str, ...], prefixes: tuple[tuple[str, str], ...] = ()
) -> AheadLayer:
    """Returns a draft layer as a model of its own. spec: the target model. name: the layer's name in messages. ignored:
    names of tensors that may stay unread. prefixes: beginnings of names in some checkpoints, each with the program's
    beginning in its place."""
    whole = replace(
        spec,
        architecture=name,
        plain=made.plain,
        program=made.program,
        ignored=ignored,
        optional_prefix="",
        stored_prefixes=prefixes,
    )
    weights = tuple(weight for weight in made.program.weights if weight not in made.shared)
    return AheadLayer(made, whole, replace(whole, program=replace(made.program, weights=weights)))


def build_ahead(
    ahead: AheadModel,
    weights: ModelWeights,
    memory: StepMemory,
    place: RunPlace,
    settings: Resolved,
    pools: CachePools,
    report: Callable[[Exception], None],
) -> tuple[AheadProposer, HiddenHistory]:
    """Returns a proposer with the loaded draft layers, and the object that keeps the target model's hidden states for
    them. weights, memory: the weights and the step memory of the target model. pools: the sizes of the pools of K and
    V: those of the first draft layer, then those of the second, and so on."""
    loaded = [place.weights(load_heads(ahead.folder, ahead.file, layer.own, settings)) for layer in ahead.layers]
    context, sequences = settings.steps.context, settings.steps.max_sequences
    count = len(pools.pages) // len(ahead.layers)
    bound = [
        _bound(ahead, layer, own, weights, place, settings, pools.num_pages[index * count : (index + 1) * count])
        for index, (layer, own) in enumerate(zip(ahead.layers, loaded, strict=True))
    ]
    history = HiddenHistory(memory, ahead.read, lambda request: _is_guessed(request, ahead.way))
    enter = _enter(ahead, weights, loaded[0], place, ahead.rows(settings))
    cache = CacheManager(replace(pools, pages=pools.pages[:count]), PAGE_TOKENS)
    executor: DraftExecutor
    if len(bound) == 1:
        executor = AheadExecutor(ahead.layers[0].made, bound[0].runner, bound[0].memory, history, ahead.width, enter)
        forget = history.forget
    else:
        executor = several = LayersExecutor(bound, history, ahead.width, ahead.rows(settings), enter)
        forget = several.forget
    writer = DraftProposer(executor, cache, sequences, context, time.perf_counter, FIRST_TOKEN_S, report)
    return AheadProposer(ahead.way, writer, forget, len(bound)), history


def _bound(
    ahead: AheadModel,
    layer: AheadLayer,
    own: ModelWeights,
    weights: ModelWeights,
    place: RunPlace,
    settings: Resolved,
    num_pages: tuple[int, ...],
) -> BoundLayer:
    """Returns one draft layer with its weights and its step memory, ready to run."""
    made, program = layer.made, layer.made.program
    matrices = {**own.matrices, **{shared.key: weights.matrices[shared.key] for shared in made.shared}}
    sizes = MemorySizes(num_pages, settings.steps.context, ahead.rows(settings), settings.steps.max_sequences)
    memory = StepMemory(program, matrices, own.vectors, settings.cache.kind, sizes, place.memory)
    forward = place.compiled(program, memory)
    if ahead.tokens:
        forward = OwnVocabulary(forward, np.array(ahead.tokens, np.int32), layer.spec.vocab_size)
    runner = place.runner(forward, memory, layer.spec.vocab_size)
    return BoundLayer(runner, memory, made.states, made.own if made.rows is None else made.rows)


def _enter(
    ahead: AheadModel, weights: ModelWeights, own: ModelWeights, place: RunPlace, rows: int
) -> Callable[[F32Array, F32Array], None]:
    vectors, matrices = {**weights.vectors, **own.vectors}, {**weights.matrices, **own.matrices}
    others = [
        vectors[item.key] if isinstance(item, Vector) else matrices[item.key] if isinstance(item, Weight) else item
        for item in ahead.enter.operands()[2:]
    ]
    return place.call(ahead.enter.NAME, others, rows, ahead.width)


def _is_guessed(request: Request, way: str) -> bool:
    return request.speculate in (None, way)
