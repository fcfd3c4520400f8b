"""Finds and loads heads that guess tokens from the model's hidden states."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from twostroke.assembly.guessing.ahead import AheadModel
from twostroke.assembly.guessing.eagle import find_eagle, is_eagle3, with_places_kept
from twostroke.assembly.guessing.heads_files import check_sizes, errors_of, load_heads, open_heads
from twostroke.assembly.guessing.prediction import find_prediction
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.resolver import Resolved
from twostroke.assets import spark_eagle_path, spark_medusa_path
from twostroke.cost.memory import MemoryNeeds
from twostroke.engine.speculate.heads import MedusaProposer
from twostroke.models.common.blocks.heads.medusa import FILE_NAME, MedusaProgram, medusa_program, read_medusa
from twostroke.ops.program.hidden import last_hidden, with_hidden_kept
from twostroke.ops.program.model import Model
from twostroke.ops.program.place import place
from twostroke.ops.program.program import Program
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.hidden_rows import LastRows
from twostroke.runner.medusa import ROWS, MedusaHeads, medusa_memory
from twostroke.types.errors import ConfigError
from twostroke.types.reading.user_path import user_path
from twostroke.types.spec.fields import Fields
from twostroke.types.speculate import EAGLE, MEDUSA, MTP
from twostroke.weights.hub.hub import EMBEDDED, ModelFolder
from twostroke.weights.json_file import read_object
from twostroke.weights.loaded import ModelWeights

SHIPPED = {MEDUSA: spark_medusa_path, EAGLE: spark_eagle_path}
"""The heads that `--speculate medusa` or `eagle` without a path uses for the embedded model."""
Report = Callable[[Exception], None]


@dataclass(frozen=True, slots=True)
class MedusaModel:
    """Medusa heads whose weights are not read yet. own: the heads as a model, for loading. Satisfies `GuessingModel`.
    """

    folder: Path
    made: MedusaProgram
    own: Model

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.made.program,)

    def input_bytes(self, settings: Resolved) -> int:
        """Returns 0: the heads read the hidden states where the target model has written them, so nothing is copied."""
        return 0

    def added_to(self, needs: MemoryNeeds, settings: Resolved) -> MemoryNeeds:
        """Returns the memory that the target model and its heads need together. needs: the memory of the target model
        alone."""
        return structs.replace(
            needs,
            weight_bytes=needs.weight_bytes + self.own.weight_bytes(format_choice(settings.model.weights)),
            buffer_bytes=needs.buffer_bytes + place(self.made.program, ROWS, 1).num_bytes,
        )


def _way(settings: Resolved) -> tuple[str, str]:
    word, _, path = str(settings.guesses.speculate).partition(":")
    return word, path


def with_hidden(spec: Model, settings: Resolved, folder: ModelFolder) -> Model:
    """Returns the model. Where heads are asked for, its program keeps the hidden states that they read, so that they
    can be read after a step."""
    way, path = _way(settings)
    if way == MEDUSA:
        return replace(spec, program=with_hidden_kept(spec.program))
    if way == EAGLE and is_eagle3(found := heads_folder(way, path, folder.source)):
        return with_places_kept(spec, found)
    return spec


def find_heads(settings: Resolved, spec: Model, folder: ModelFolder) -> MedusaModel | AheadModel | None:
    """Returns the heads that are asked for; None where none are. Raises ConfigError where they do not fit the model."""
    way, path = _way(settings)
    if way == MTP:
        return find_prediction(folder.path, spec)
    if way not in SHIPPED:
        return None
    found = heads_folder(way, path, folder.source)
    return find_medusa(found, spec) if way == MEDUSA else find_eagle(found, spec)


def heads_folder(way: str, path: str, model: str) -> Path:
    """Returns PATH of `--speculate medusa:PATH`, or the folder of the heads that ship for this model. Raises
    ConfigError where none ship."""
    if path:
        return user_path(path)
    if model != EMBEDDED:
        raise ConfigError(
            f"--speculate {way} names no folder.",
            why=f"Heads ship for {EMBEDDED} alone.",
            fix=f"Write {way}:PATH with the folder of heads that were trained for this model.",
        )
    return SHIPPED[way]()


def find_medusa(folder: Path, spec: Model) -> MedusaModel:
    """Finds the Medusa heads for this model. Raises ConfigError that names the field or the tensor that does not fit.
    """
    head = last_hidden(spec.program)
    option = f"--speculate {MEDUSA}:{folder}"
    with errors_of(option):
        config = read_medusa(Fields(read_object(folder / "config.json"), "config.json"))
        made = medusa_program(config, spec.hidden_size, head.matrix)
        weights = tuple(weight for weight in made.program.weights if weight is not made.shared)
        more = tuple(f"{index}." for index in range(config.num_heads, 100))
        own = replace(
            spec,
            architecture="row of Medusa heads",
            program=replace(made.program, weights=weights),
            ignored=more,
            optional_prefix="",
            stored_prefixes=(),
        )
        with open_heads(folder, FILE_NAME, option) as checkpoint:
            check_sizes(checkpoint, own, option, spec)
    return MedusaModel(folder, made, own)


def build_medusa(
    medusa: MedusaModel, weights: ModelWeights, memory: StepMemory, spec: Model, where: RunPlace, settings: Resolved
) -> tuple[MedusaHeads, LastRows]:
    """Returns the loaded heads, and the reader of hidden states for them. weights, memory: the weights and the step
    memory of the model."""
    own = where.weights(load_heads(medusa.folder, FILE_NAME, medusa.own, settings))
    shared = medusa.made.shared
    matrices = {**own.matrices, **({shared.key: weights.matrices[shared.key]} if shared else {})}
    heads_memory = medusa_memory(medusa.made, replace(own, matrices=matrices), where.memory)
    rows = LastRows(memory, last_hidden(spec.program).rows)
    forward = where.compiled(medusa.made.program, heads_memory)
    return MedusaHeads(medusa.made, forward, heads_memory, rows, where.ops.weigh), rows


def medusa_proposer(heads: MedusaHeads, report: Report) -> MedusaProposer:
    """Returns a proposer that uses the heads, with a real clock and the time that the heads take, measured once here.
    """
    heads.run_once()  # the first call touches weights and buffers for the first time
    begin_s = time.perf_counter()
    heads.run_once()
    return MedusaProposer(heads, heads.num_heads, time.perf_counter, time.perf_counter() - begin_s, report)
