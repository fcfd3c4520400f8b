"""Measures what the KV formats cost in accuracy on spark: KL divergence, perplexity and agreement against f32 K and V.

The text is spark's held-out questions with their answers, in dialogues of a few turns, so that late answers are read
through a few hundred positions of cache. Weights are f32, so that only the KV format differs; each dialogue is computed
in chunks, so that most positions are read from pages written earlier. Answers, which spark knows by heart, and
questions, which it has never seen, are counted apart. The second model is spark with outliers: in each head one rotated
pair of K's channels is ten times as large and the same pair of Q's a tenth. In f32 it is the same model.

    python -m tools.measure_kv [--turns 6] [--dialogues 60] [--model FOLDER] [--json]

Knows: the corpus, programs and their memory, the KV formats. Must not know: the server, kernels.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from tools.spark.corpus import load
from tools.spark.tokenizer import ASSISTANT, BOS, DEFAULT_SYSTEM, END, SYSTEM, USER

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps
from twostroke.ops.attention import Attention
from twostroke.ops.operands import F32Array, PackedWeight, unpack
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.program.model import Model
from twostroke.program.values import Weight
from twostroke.quant.codec import pack_weight
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
class Loaded:
    """A model with weights of one format, and what runs it."""

    model: Model
    weights: ModelWeights
    ops: CpuOps


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


def log_probabilities(loaded: Loaded, kind: KVKind, dialogue: Dialogue) -> F32Array:
    """(T, vocabulary) float32 of one dialogue, computed in chunks of CHUNK_TOKENS."""
    program, total = loaded.model.program, len(dialogue.token_ids)
    pages = -(-total // PAGE_TOKENS)
    sizes = MemorySizes(pages, pages * PAGE_TOKENS, CHUNK_TOKENS, CHUNK_TOKENS)
    memory = StepMemory(program, loaded.weights.matrices, loaded.weights.vectors, kind, sizes)
    forward, rows = loaded.ops.compile(program, memory), []
    memory.batch.page_table[0] = np.arange(pages)
    memory.logit_rows[:] = np.arange(CHUNK_TOKENS)
    for start in range(0, total, CHUNK_TOKENS):
        end = min(start + CHUNK_TOKENS, total)
        count = end - start
        memory.token_ids[:count] = dialogue.token_ids[start:end]
        # Pages are taken in order: the slot of a position is the position.
        memory.positions[:count] = memory.slots[:count] = np.arange(start, end)
        memory.batch.row_starts[:2] = [0, count]
        memory.batch.context_tokens[0] = end
        rows.append(forward(StepSizes(count, 1, count)).copy())
    logits: F32Array = np.concatenate(rows)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def with_outliers(model: Model, weights: ModelWeights) -> ModelWeights:
    """The same model in f32, with one pair of channels of each K head OUTLIER times as large. For models without norms
    on heads."""
    attentions = [call for call in model.plain.calls if isinstance(call, Attention)]
    joined = [weight for weight in model.plain.weights if weight.role == "qkv"]
    changed = {
        weight.key: _louder_keys(weights.matrix(weight), weight, call)
        for weight, call in zip(joined, attentions, strict=True)
    }
    return replace(weights, matrices={**weights.matrices, **changed})


def _louder_keys(packed: PackedWeight, weight: Weight, call: Attention) -> PackedWeight:
    """Rows of q, k and v: one pair of channels of each head of k OUTLIER times as large, of q as much smaller."""
    query_heads, dim = call.q.shape
    heads = query_heads + weight.parts[1].length // dim
    factors = np.ones(packed.rows, np.float32)
    for head in range(heads):
        pair = [head * dim + 1, head * dim + 1 + dim // 2]
        factors[pair] = OUTLIER if head >= query_heads else 1 / OUTLIER
    bias = None if packed.bias is None else packed.bias * factors
    return pack_weight(unpack(packed) * factors[:, None], F32, bias)


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


def measure(name: str, loaded: Loaded, texts: list[Dialogue]) -> list[Measurement]:
    """Every format against f32, part by part."""
    sums = {(part, kind): Sums() for part in texts[0].parts for kind in KVKind}
    for text in texts:
        ids = np.array(text.token_ids)
        exact = log_probabilities(loaded, KVKind.F32, text)
        for kind in KVKind:
            found = exact if kind is KVKind.F32 else log_probabilities(loaded, kind, text)
            for part, at in text.parts.items():
                sums[part, kind].add(exact[at], found[at], ids[np.array(at) + 1])
    dim = loaded.model.paged_kinds[0].head_dim
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
    model, weights = load_folder(asked.model, F32)
    ops = CpuOps(None, 1)
    texts = dialogues(Tokenizer.from_folder(asked.model), asked.turns, asked.dialogues)
    found = []
    for name, used in (("spark", weights), ("with outliers", with_outliers(model, weights))):
        found += measure(name, Loaded(model, used, ops), texts)
    ops.close()
    if asked.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    positions = [len(text.token_ids) for text in texts]
    print(f"{len(texts)} dialogues of {min(positions)} to {max(positions)} positions")
    print(table(found))


if __name__ == "__main__":
    main()
