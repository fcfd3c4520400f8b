"""Finds and loads an EAGLE layer.

Knows: settings, the rooms below.
Must not know: how an engine is put together, servers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from twostroke.assemble_guesses import needs_with
from twostroke.assemble_heads_files import check_sizes, load_heads, open_heads
from twostroke.backends.cpu import CpuOps
from twostroke.cache.manager import CacheManager
from twostroke.config import Resolved, kv_kind
from twostroke.cost.memory import MemoryNeeds
from twostroke.models.common.eagle import LAYER, EagleProgram, eagle_program
from twostroke.ops.step_memory import MemorySizes, StepMemory
from twostroke.program.hidden import last_hidden
from twostroke.program.model import Model
from twostroke.program.op import Op
from twostroke.program.values import Value, Vector, Weight
from twostroke.quant.formats import format_choice
from twostroke.runner.eagle import EagleExecutor, HiddenHistory, native_norm
from twostroke.runner.runner import ModelRunner
from twostroke.spec.fields import Fields
from twostroke.spec.formats import PAGE_TOKENS
from twostroke.speculate.draft import PROMPT_ROWS
from twostroke.speculate.eagle import EagleProposer
from twostroke.types.cache_pools import CachePools
from twostroke.types.errors import ConfigError, ModelError
from twostroke.types.request import Request
from twostroke.types.speculate import EAGLE
from twostroke.weights.checkpoint import SINGLE_NAME
from twostroke.weights.json_file import read_object
from twostroke.weights.loaded import ModelWeights

FIRST_TOKEN_S = 1e-3
"""Of one guess, until calls were timed."""
NORMS = ("rms_norm", "layer_norm")


@dataclass(frozen=True, slots=True)
class EagleModel:
    """A layer whose weights are not read yet. own: what is loaded, the layer alone. norm: the model's last.

    body: what that norm reads, of all rows.
    """

    folder: Path
    made: EagleProgram
    spec: Model
    own: Model
    norm: Op
    body: Value

    def rows(self, settings: Resolved) -> int:
        """Of one step of the layer."""
        return max(PROMPT_ROWS, int(settings["max_sequences"]))

    def added_to(self, needs: MemoryNeeds, settings: Resolved) -> MemoryNeeds:
        """What model and layer need together."""
        weight_bytes = self.own.weight_bytes(format_choice(settings["weights"]))
        return needs_with(needs, self.spec, weight_bytes, self.rows(settings), settings["context"], settings)


def find_eagle(folder: Path, spec: Model) -> EagleModel:
    """A layer for this model. Raises ConfigError that names the field or the tensor that does not fit."""
    option = f"--speculate {EAGLE}:{folder}"
    hidden = last_hidden(spec.program)
    tables = [call for call in spec.program.body if call.NAME == "embed"]
    embedding = next((item for call in tables for item in call.operands() if isinstance(item, Weight)), None)
    if embedding is None or hidden.norm is None or hidden.norm.NAME not in NORMS:
        raise ConfigError(
            f"{option} is not possible with this model.",
            why="The layer reads hidden states behind one last norm, and rows of one embedding.",
            fix="Use --speculate auto.",
        )
    try:
        fields = Fields(read_object(folder / "config.json"), "config.json")
        made = eagle_program(fields, spec.hidden_size, spec.longest_context, embedding, hidden.matrix)
        whole = replace(
            spec,
            architecture="layer of EAGLE",
            plain=made.plain,
            program=made.program,
            ignored=("embed_tokens.weight", "lm_head.weight", f"{LAYER}input_layernorm.weight"),
            optional_prefix="",
            stored_prefixes=(),
        )
        weights = tuple(weight for weight in made.program.weights if weight not in made.shared)
        own = replace(whole, program=replace(made.program, weights=weights))
        with open_heads(folder, SINGLE_NAME, option) as checkpoint:
            check_sizes(checkpoint, own, option, spec)
    except ModelError as error:
        raise ConfigError(f"{option}: {error.what}", why=error.why, fix=error.fix) from None
    return EagleModel(folder, made, whole, own, hidden.norm, hidden.body)


def build_eagle(
    eagle: EagleModel,
    weights: ModelWeights,
    memory: StepMemory,
    ops: CpuOps,
    settings: Resolved,
    pools: CachePools,
    report: Callable[[Exception], None],
) -> tuple[EagleProposer, HiddenHistory]:
    """The layer, loaded, and what keeps hidden states for it. weights, memory: the model's. pools: of its K and V."""
    own = load_heads(eagle.folder, SINGLE_NAME, eagle.own, settings)
    matrices = {**own.matrices, **{shared.key: weights.matrices[shared.key] for shared in eagle.made.shared}}
    sequences, context = settings["max_sequences"], settings["context"]
    sizes = MemorySizes(pools.num_pages, context, eagle.rows(settings), sequences)
    program = eagle.made.program
    layer_memory = StepMemory(program, matrices, own.vectors, kv_kind(settings["kv_format"]), sizes)
    runner = ModelRunner(ops.compile(program, layer_memory), layer_memory, time.perf_counter, weigh=ops.weigh)
    history = HiddenHistory(memory, eagle.body, _is_guessed)
    others = [weights.vectors[item.key] if isinstance(item, Vector) else item for item in eagle.norm.operands()[2:]]
    norm = native_norm(ops, eagle.norm.NAME, others)
    executor = EagleExecutor(eagle.made, runner, layer_memory, history, norm)
    cache = CacheManager(pools, PAGE_TOKENS)
    args = (executor, cache, sequences, context, time.perf_counter, FIRST_TOKEN_S, report)
    return EagleProposer(*args), history


def _is_guessed(request: Request) -> bool:
    """What an engine with an EAGLE layer guesses by it."""
    return request.speculate in (None, EAGLE)
