"""Measures what the weight formats cost on a model: KL divergence, perplexity and agreement against f32 weights.

The text and the measures are those of measure_kv.py; K and V are f32 here. The second model is spark with outliers: a
few channels of the residual stream leave each norm OUTLIER times as large, and the columns of the next matrix are as
much smaller. In f32 it is the same model; its activations are of the kind that large models are known for.

    python -m tools.measure_weights [--turns 6] [--dialogues 60] [--model FOLDER] [--json]

Knows: the corpus, the model program, the weight formats. Must not know: the server, kernels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from tools.measure_kv import Dialogue, Measurement, Sums, dialogues, log_probabilities, table
from twostroke.weights.tree import LayerWeights, ModelWeights

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps
from twostroke.models.llama import LlamaModel
from twostroke.ops.operands import F32Array, PackedWeight, unpack
from twostroke.ops.rope_tables import rope_table
from twostroke.program.model import Model
from twostroke.quant.codec import pack_weight
from twostroke.quant.formats import FORMATS
from twostroke.runner.folder import load_folder
from twostroke.spec.formats import F32, KVKind, WeightFormat
from twostroke.text.tokenizer import Tokenizer

OUTLIER = np.float32(30)
OUTLIER_CHANNELS = (5, 77, 200)


def each_matrix(weights: ModelWeights, change: Callable[[PackedWeight], PackedWeight]) -> ModelWeights:
    """The same tree with every matrix changed; a tied head stays the embedding itself."""

    def layer(one: LayerWeights) -> LayerWeights:
        return replace(one, qkv=change(one.qkv), o=change(one.o), gate_up=change(one.gate_up), down=change(one.down))

    embedding = change(weights.embedding)
    head = embedding if weights.head is weights.embedding else change(weights.head)
    return ModelWeights(embedding, tuple(map(layer, weights.layers)), weights.final_norm, head)


def in_format(weight_format: WeightFormat) -> Callable[[PackedWeight], PackedWeight]:
    """f32 matrices rounded to a format."""
    return lambda weight: pack_weight(unpack(weight), weight_format, weight.bias)


def with_outliers(weights: ModelWeights) -> ModelWeights:
    """The same model in f32 with OUTLIER_CHANNELS of what each norm puts out OUTLIER times as large."""
    channels = np.array(OUTLIER_CHANNELS) % len(weights.final_norm)

    def louder(norm: F32Array) -> F32Array:
        made = norm.copy()
        made[channels] *= OUTLIER
        return made

    def quieter(weight: PackedWeight) -> PackedWeight:
        full = unpack(weight)
        full[:, channels] /= OUTLIER
        return pack_weight(full, F32, weight.bias)

    layers = tuple(
        replace(
            one,
            attn_norm=louder(one.attn_norm),
            qkv=quieter(one.qkv),
            mlp_norm=louder(one.mlp_norm),
            gate_up=quieter(one.gate_up),
        )
        for one in weights.layers
    )
    return replace(weights, layers=layers)


def measure(name: str, spec: Model, weights: ModelWeights, ops: CpuOps, texts: list[Dialogue]) -> list[Measurement]:
    """Every format against f32, part by part."""
    table_ = rope_table(spec.rope, spec.max_positions)
    exact_model = LlamaModel(spec, weights, table_, ops)
    exact = [log_probabilities(exact_model, KVKind.F32, text) for text in texts]
    found: list[Measurement] = []
    base: dict[str, float] = {}
    for format_name, weight_format in FORMATS.items():
        model = LlamaModel(spec, each_matrix(weights, in_format(weight_format)), table_, ops)
        sums = {part: Sums() for part in texts[0].parts}
        for text, truth in zip(texts, exact, strict=True):
            ids, said = np.array(text.token_ids), log_probabilities(model, KVKind.F32, text)
            for part, at in text.parts.items():
                sums[part].add(truth[at], said[at], ids[np.array(at) + 1])
        for part, one in sums.items():
            base.setdefault(part, one.perplexity)  # FORMATS begins with f32
            found.append(
                Measurement(
                    model=name,
                    text=part,
                    kind=format_name,
                    bits_per_element=weight_format.bits_per_weight,
                    kl_nats=one.divergence / one.positions,
                    perplexity=one.perplexity,
                    perplexity_cost=one.perplexity / base[part] - 1,
                    agreement=one.same / one.positions,
                )
            )
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--dialogues", type=int, default=60)
    parser.add_argument("--model", type=Path, default=spark_path())
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    spec, weights = load_folder(asked.model, F32)
    texts = dialogues(Tokenizer.from_folder(asked.model), asked.turns, asked.dialogues)
    ops = CpuOps(None, 1)
    found = measure("spark", spec, weights, ops, texts)
    found += measure("with outliers", spec, with_outliers(weights), ops, texts)
    ops.close()
    if asked.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    print(table(found).replace("K and V", "weights"))


if __name__ == "__main__":
    main()
