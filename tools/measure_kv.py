"""Measures what the KV formats cost in accuracy on spark: KL divergence, perplexity and agreement against f32 K and V.

The text is spark's held-out questions with their answers, in dialogues of a few turns, so that late answers are read
through a few hundred positions of cache. Weights are f32, so that only the KV format differs; each dialogue is computed
in chunks, so that most positions are read from pages written earlier. Answers, which spark knows by heart, and
questions, which it has never seen, are counted apart. The second model is spark with outliers: in each head one rotated
pair of K's channels is ten times as large and the same pair of Q's a tenth. In f32 it is the same model.

    python -m tools.measure_kv [--turns 6] [--dialogues 60] [--model FOLDER] [--json]

Knows: the corpus, the model program, the KV formats. Must not know: the server, kernels.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from tools.spark.corpus import load
from tools.spark.tokenizer import ASSISTANT, BOS, DEFAULT_SYSTEM, END, SYSTEM, USER
from twostroke.models.batch import Batch, Buffers

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps
from twostroke.models.llama import LlamaModel
from twostroke.ops.operands import AttentionBatch, F32Array, PackedWeight, new_kv_layer, pack_floats, unpack
from twostroke.ops.rope_tables import rope_table
from twostroke.program.model import Model
from twostroke.runner.folder import load_folder
from twostroke.spec.formats import F32, PAGE_TOKENS, KVKind
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.loaded import ModelWeights

CHUNK_TOKENS = 16
OUTLIER = 10.0


@dataclass(frozen=True)
class Dialogue:
    """token_ids: (T,). parts: for "answers" and "questions", the positions that predict a token of theirs."""

    token_ids: list[int]
    parts: dict[str, list[int]]


@dataclass(frozen=True)
class Measurement:
    """kl_nats: mean KL(f32 || format) of a position. agreement: share of positions whose best token is f32's."""

    model: str
    text: str
    kind: str
    bits_per_element: float
    kl_nats: float
    perplexity: float
    perplexity_cost: float
    agreement: float


def dialogues(tokenizer: Tokenizer, turns: int, count: int) -> list[Dialogue]:
    """`count` dialogues over the held-out questions, in a fixed shuffled order."""
    pairs = [(question, entry.answer) for entry in load() for question in entry.held_out]
    order = np.random.default_rng(0).permutation(len(pairs))[: turns * count].reshape(-1, turns)
    made = []
    for rows in order:
        ids = tokenizer.encode_rendered(f"{BOS}{SYSTEM}\n{DEFAULT_SYSTEM}{END}\n")
        parts: dict[str, list[int]] = {"answers": [], "questions": []}
        for question, answer in (pairs[row] for row in rows):
            for part, before, text in (("questions", f"{USER}\n", question), ("answers", f"{ASSISTANT}\n", answer)):
                ids += tokenizer.encode_rendered(before)
                said = tokenizer.encode_rendered(f"{text}{END}")
                parts[part] += range(len(ids) - 1, len(ids) + len(said) - 1)
                ids += [*said, *tokenizer.encode_rendered("\n")]
        made.append(Dialogue(ids, parts))
    return made


def log_probabilities(model: LlamaModel, kind: KVKind, dialogue: Dialogue) -> F32Array:
    """(T, vocabulary) float32 of one dialogue, computed in chunks of CHUNK_TOKENS."""
    spec, total = model.spec, len(dialogue.token_ids)
    pages = -(-total // PAGE_TOKENS)
    kv = [new_kv_layer(kind, pages, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers)]
    buffers, rows = Buffers(spec, CHUNK_TOKENS, CHUNK_TOKENS), []
    table = np.arange(pages, dtype=np.int32)[None, :]
    for start in range(0, total, CHUNK_TOKENS):
        positions = np.arange(start, min(start + CHUNK_TOKENS, total), dtype=np.int32)
        ends = AttentionBatch(np.array([0, len(positions)], np.int32), np.array([positions[-1] + 1], np.int32), table)
        ids = np.array(dialogue.token_ids[start : start + CHUNK_TOKENS], np.int32)
        batch = Batch(ids, positions, positions, ends, np.arange(len(positions), dtype=np.int32))
        rows.append(model.forward(batch, kv, buffers).copy())
    logits: F32Array = np.concatenate(rows)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def with_outliers(spec: Model, weights: ModelWeights) -> ModelWeights:
    """The same model in f32, with one pair of channels of each K head OUTLIER times as large."""
    dim, heads = spec.head_dim, spec.num_heads + spec.num_kv_heads
    layers = []
    for layer in weights.layers:
        full = unpack(layer.qkv)
        for head in range(heads):
            factor = np.float32(OUTLIER if head >= spec.num_heads else 1 / OUTLIER)
            full[[head * dim + 1, head * dim + 1 + dim // 2]] *= factor
        packed = PackedWeight(F32, layer.qkv.rows, layer.qkv.columns, pack_floats(full, F32), None, layer.qkv.bias)
        layers.append(replace(layer, qkv=packed))
    return replace(weights, layers=tuple(layers))


class Sums:
    """What one format has lost on one part of the text."""

    def __init__(self) -> None:
        self.positions, self.divergence, self.surprise, self.same = 0, 0.0, 0.0, 0.0

    def add(self, exact: F32Array, found: F32Array, targets: np.ndarray) -> None:
        """exact, found: (N, vocabulary) log probabilities; targets: (N,)."""
        self.positions += len(targets)
        self.divergence += float((np.exp(exact, dtype=np.float64) * (exact.astype(np.float64) - found)).sum())
        self.surprise -= float(found[np.arange(len(targets)), targets].sum(dtype=np.float64))
        self.same += float((found.argmax(axis=1) == exact.argmax(axis=1)).sum())

    @property
    def perplexity(self) -> float:
        """exp of the mean surprise."""
        return float(np.exp(self.surprise / self.positions))


def measure(name: str, model: LlamaModel, texts: list[Dialogue]) -> list[Measurement]:
    """Every format against f32, part by part."""
    sums = {(part, kind): Sums() for part in texts[0].parts for kind in KVKind}
    for text in texts:
        ids = np.array(text.token_ids)
        exact = log_probabilities(model, KVKind.F32, text)
        for kind in KVKind:
            found = exact if kind is KVKind.F32 else log_probabilities(model, kind, text)
            for part, at in text.parts.items():
                sums[part, kind].add(exact[at], found[at], ids[np.array(at) + 1])
    dim = model.spec.head_dim
    return [
        Measurement(
            model=name,
            text=part,
            kind=kind.name.lower(),
            bits_per_element=8 * kind.token_bytes(dim) / (2 * dim),
            kl_nats=one.divergence / one.positions,
            perplexity=one.perplexity,
            perplexity_cost=one.perplexity / sums[part, KVKind.F32].perplexity - 1,
            agreement=one.same / one.positions,
        )
        for (part, kind), one in sums.items()
    ]


def table(found: list[Measurement]) -> str:
    """A Markdown table."""
    lines = [
        "| model | text | K and V | bits | KL (nats) | perplexity | against f32 | same best token |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {m.model} | {m.text} | {m.kind} | {m.bits_per_element:.2f} | {m.kl_nats:.2e} | {m.perplexity:.5f} "
        f"| {m.perplexity_cost:+.3%} | {m.agreement:.3%} |"
        for m in found
    ]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--dialogues", type=int, default=60)
    parser.add_argument("--model", type=Path, default=spark_path())
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    spec, weights = load_folder(asked.model, F32)
    ops = CpuOps(None, 1)
    texts = dialogues(Tokenizer.from_folder(asked.model), asked.turns, asked.dialogues)
    found = []
    for name, used in (("spark", weights), ("with outliers", with_outliers(spec, weights))):
        found += measure(name, LlamaModel(spec, used, rope_table(spec.rope, spec.max_positions), ops), texts)
    ops.close()
    if asked.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    positions = [len(text.token_ids) for text in texts]
    print(f"{len(texts)} dialogues of {min(positions)} to {max(positions)} positions")
    print(table(found))


if __name__ == "__main__":
    main()
