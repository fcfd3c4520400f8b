"""Calibrates keys: finds a factor for each channel of K, by which the channel is divided before it is rounded to int8
or int4. The factors are those with which rounding changes the scores of a text least.

Nothing is rounded while the text runs. Keys and queries are read as attention reads them, stage by stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.kv_write import KVWrite
from twostroke.ops.operands import F32Array
from twostroke.ops.passes.scaled_keys import caches_without_bias, scalable_caches, with_scaled_keys
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op
from twostroke.ops.program.values import Value
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.quantize.driver.calibrate import Progress, no_progress
from twostroke.quantize.driver.compare import Divergence, compare
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.stages import StagedModel, exact_formats
from twostroke.quantize.driver.texts import CalibrationText
from twostroke.quantize.mathematics.key_scaling import choose_exponents
from twostroke.runner.folder import read_folder
from twostroke.types.errors import UnsupportedModel
from twostroke.types.pooling import Task
from twostroke.types.spec.formats import KVKind
from twostroke.weights.key_factors import Exponents, KeyFactors, require_same_model, write_key_factors

STEPS: Mapping[KVKind, int] = {KVKind.INT8: 127, KVKind.INT4: 7}
"""The largest code of each format that rounds K."""
ROWS_OF_A_RUN = 64
"""At most this many positions of each sequence of the text are used, evenly spaced. Those between them are similar."""


@dataclass(frozen=True, slots=True)
class KeyReport:
    """The report of calibrating a model's keys. path: the written file. layers: the number of layers with factors for
    channels of K. used_tokens: the tokens for finding the factors. held_out_tokens: those for measuring the costs.
    costs: for int8 and int4, the divergence of the model with such K and V from the original, without and with the
    factors. It is empty where this was not measured."""

    path: Path
    layers: int
    used_tokens: int
    held_out_tokens: int
    costs: Mapping[str, tuple[Divergence, Divergence]]

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values for --json."""
        formats = {
            name: {word: _figures(each) for word, each in zip(("before", "after"), pair, strict=True)}
            for name, pair in self.costs.items()
        }
        found = {"target": "keys", "file": str(self.path), "layers": self.layers}
        tokens = {"calibration_tokens": self.used_tokens, "held_out_tokens": self.held_out_tokens}
        return {**found, **tokens, "formats": formats}

    def as_text(self) -> str:
        """Returns the report as a few lines of text."""
        lines = [f"{self.path}: factors of the keys of {self.layers} layers"]
        if self.costs:
            lines.append(f"on {self.held_out_tokens:,} tokens that calibration has not seen, without -> with factors:")
        for name, (before, after) in self.costs.items():
            ratios = [each.perplexities[1] / each.perplexities[0] for each in (before, after)]
            lines.append(
                f"  --kv-format {name}: KL {before.mean_kl:.2e} -> {after.mean_kl:.2e} nats, perplexity of the "
                f"original times {ratios[0]:.4f} -> {ratios[1]:.4f}"
            )
        return "\n".join(lines)


def _figures(cost: Divergence) -> dict[str, float]:
    before, after = cost.perplexities
    return {"kl_nats": cost.mean_kl, "perplexity_ratio": after / before}


def calibrate_keys(
    folder: Path,
    output: Path,
    texts: CalibrationText,
    threads: int,
    compared: bool = True,
    progress: Progress = no_progress,
) -> KeyReport:
    """Finds a factor for each channel of K, which makes K easier to round, and writes the factors into `output`, a
    folder with the same model. compared: whether the report also has the cost of rounding K and V on held-out text.

    Raises UnsupportedModel where the model keeps no K, ConfigError where the file cannot be written, ModelError.
    """
    model = read_folder(folder)
    why = _why_not(model)
    if why:
        raise UnsupportedModel(
            f"The keys of this {model.architecture} cannot be calibrated.",
            why=why,
            fix="Serve it as it is: --kv-format bf16 rounds least.",
        )
    require_same_model(folder, output)
    stored = any(weight.stored for weight in model.plain.weights)
    with staged_folder(folder, threads, format_choice(STORED) if stored else exact_formats, model) as staged:
        found = key_factors(staged, texts, progress)
        costs = {}
        for kind in STEPS if compared else ():
            name = kind.name.lower()
            pair = (replace(staged, kv=kind), with_factors(replace(staged, kv=kind), found))
            runs = list(texts.held_out)
            costs[name] = (
                compare(staged, pair[0], runs, each=False).whole,
                compare(staged, pair[1], runs, each=False).whole,
            )
    path = write_key_factors(output, found)
    return KeyReport(path, len(scalable_caches(model.plain)), texts.used.size, texts.held_out.size, costs)


def _why_not(model: Model) -> str:
    """Returns why this model's K cannot be divided by factors before it is rounded; an empty text where it can."""
    kinds = scalable_caches(model.plain)
    if model.task is not Task.GENERATE or not kinds:
        return "It keeps no K and V in pages of heads, or it makes no text."
    try:
        with_scaled_keys(model.plain, {at: (1.0,) * (kind.kv_heads * kind.head_dim) for at, kind in kinds.items()})
    except ValueError as error:
        return f"Its keys or queries are read a second time: {error}."
    return ""


def with_factors(staged: StagedModel, found: KeyFactors) -> StagedModel:
    """Returns the model with each channel of K divided by its factor, and the same channel of the queries multiplied by
    it. The scores stay the same. The factors are those for the model's format of K and V."""
    program = with_scaled_keys(staged.model.plain, found.factors(staged.kv))
    return replace(staged, model=replace(staged.model, plain=program, program=program))


def key_factors(staged: StagedModel, texts: CalibrationText, progress: Progress = no_progress) -> KeyFactors:
    """Finds, for int8 and for int4, the factor by which each channel of K of each layer is divided before rounding.
    Raises ModelError."""
    wanted = scalable_caches(staged.model.plain)
    found: dict[KVKind, dict[int, tuple[tuple[int, ...], ...]]] = {kind: {} for kind in STEPS}
    runs, count = list(texts.used), len(staged.stages)
    given: list[F32Array] = []
    total = sum(shard.path.stat().st_size for shard in staged.checkpoint.shards.values())
    for index in range(count):
        progress(total * index // count, total, f"stage {index + 1} of {count}")
        seen = _Seen()
        given = staged.run(index, staged.weights(index), runs, given, seen)
        for cache in seen.keys.keys() & seen.queries.keys() & wanted.keys():
            for kind, steps in STEPS.items():
                found[kind][cache] = _heads(seen.rows(seen.keys[cache]), seen.rows(seen.queries[cache]), steps)
    progress(total, total, "done")
    exponents: dict[str, Exponents] = {kind.name.lower(): dict(sorted(each.items())) for kind, each in found.items()}
    return KeyFactors(exponents, caches_without_bias(staged.model.plain))


class _Seen:
    """Collects some rows of the keys and queries of a stage while it runs. keys, queries: for the index of each cache,
    an array (rows, heads, head_dim) for each sequence of the text."""

    def __init__(self) -> None:
        self.keys: dict[int, list[F32Array]] = {}
        self.queries: dict[int, list[F32Array]] = {}

    def __call__(self, call: Op, array_of: Callable[[Value], F32Array]) -> None:
        if isinstance(call, KVWrite):
            self.keys.setdefault(call.layer.index, []).append(_some(array_of(call.k)))
        elif isinstance(call, Attention):
            self.queries.setdefault(call.layer.index, []).append(_some(array_of(call.q)))

    @staticmethod
    def rows(parts: list[F32Array]) -> F32Array:
        """Joins the collected rows of all sequences."""
        return np.concatenate(parts)


def _some(rows: F32Array) -> F32Array:
    return rows[:: -(-len(rows) // ROWS_OF_A_RUN)].copy()


def _heads(keys: F32Array, queries: F32Array, steps: int) -> tuple[tuple[int, ...], ...]:
    """Returns, for each KV head, an exponent e for each channel of K: the channel is divided by 2^e before it is
    rounded. queries: (rows, heads, head_dim), with the query heads of one KV head next to each other. steps: the
    largest code of the format, 127 or 7."""
    count = keys.shape[1]
    each = queries.reshape(len(queries), count, -1, keys.shape[2])
    chosen = [choose_exponents(keys[:, head], each[:, head].reshape(-1, keys.shape[2]), steps) for head in range(count)]
    return tuple(tuple(map(int, choice.exponents)) for choice in chosen)
