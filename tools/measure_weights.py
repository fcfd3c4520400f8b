"""Measures what the weight formats cost on a model: KL divergence, perplexity and agreement against f32 weights.

The text and the measures are those of measure_kv.py; K and V are f32 here. The second model is spark with outliers: a
few channels of the residual stream leave each norm OUTLIER times as large, and the columns of the next matrix are as
much smaller. In f32 it is the same model; its activations are of the kind that large models are known for.

    python -m tools.measure_weights [--turns 6] [--dialogues 60] [--model FOLDER] [--json]

Knows: the corpus, programs, the weight formats. Must not know: the server, kernels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from tools.measure_kv import Dialogue, Loaded, Measurement, Sums, dialogues, log_probabilities, table

from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps
from twostroke.ops.linear import Linear
from twostroke.ops.operands import F32Array, PackedWeight, unpack
from twostroke.ops.rms_norm import RmsNorm
from twostroke.program.model import Model
from twostroke.quant.codec import pack_weight
from twostroke.quant.formats import FORMATS
from twostroke.runner.folder import load_folder
from twostroke.spec.formats import F32, KVKind, WeightFormat
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.loaded import ModelWeights

OUTLIER = np.float32(30)
OUTLIER_CHANNELS = (5, 77, 200)


def each_matrix(weights: ModelWeights, change: Callable[[PackedWeight], PackedWeight]) -> ModelWeights:
    """The same weights with every matrix changed; a tied head is the embedding, so both change together."""
    return replace(weights, matrices={key: change(matrix) for key, matrix in weights.matrices.items()})


def in_format(weight_format: WeightFormat) -> Callable[[PackedWeight], PackedWeight]:
    """f32 matrices rounded to a format."""
    return lambda weight: pack_weight(unpack(weight), weight_format, weight.bias)


def with_outliers(model: Model, weights: ModelWeights) -> ModelWeights:
    """The same model in f32 with OUTLIER_CHANNELS of what each layer's norms put out OUTLIER times as large."""
    channels = np.array(OUTLIER_CHANNELS) % model.hidden_size

    def louder(norm: F32Array) -> F32Array:
        made = norm.copy()
        made[channels] *= OUTLIER
        return made

    def quieter(weight: PackedWeight) -> PackedWeight:
        full = unpack(weight)
        full[:, channels] /= OUTLIER
        return pack_weight(full, F32, weight.bias)

    norms = {call.out: call.weight for call in model.plain.body if isinstance(call, RmsNorm)}
    readers = [call.weight for call in model.plain.body if isinstance(call, Linear) and call.x in norms]
    return replace(
        weights,
        vectors={**weights.vectors, **{norm.key: louder(weights.vector(norm)) for norm in norms.values()}},
        matrices={**weights.matrices, **{weight.key: quieter(weights.matrix(weight)) for weight in readers}},
    )


def measure(name: str, exact_model: Loaded, texts: list[Dialogue]) -> list[Measurement]:
    """Every format against f32, part by part."""
    exact = [log_probabilities(exact_model, KVKind.F32, text) for text in texts]
    found: list[Measurement] = []
    base: dict[str, float] = {}
    for format_name, weight_format in FORMATS.items():
        rounded = each_matrix(exact_model.weights, in_format(weight_format))
        model = Loaded(exact_model.model, rounded, exact_model.ops)
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
    model, weights = load_folder(asked.model, F32)
    texts = dialogues(Tokenizer.from_folder(asked.model), asked.turns, asked.dialogues)
    ops = CpuOps(None, 1)
    found = measure("spark", Loaded(model, weights, ops), texts)
    found += measure("with outliers", Loaded(model, with_outliers(model, weights), ops), texts)
    ops.close()
    if asked.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    print(table(found).replace("K and V", "weights"))


if __name__ == "__main__":
    main()
