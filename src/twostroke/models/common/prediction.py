"""The layers of a checkpoint that predict further tokens, and the registry of the architectures that have such layers.

    x = eh_proj([enorm(E(token t + 1)); hnorm(h_t)]); x = layer(x); h = norm(x); logits of the token t + 2: M h

h_t is the hidden state after the model's last norm; after the first guess, it is the layer's own h. E and M are those
of the model: copies of them in the layer are not read. Where there are several layers, layer k reads the h of layer
k - 1 and token t + 1 + k. It predicts token t + 2 + k.

    @predicts("DeepseekV3ForCausalLM")
    def prediction(fields: Fields) -> Sequence[MtpHead]: ...

Source: DeepSeek-V3, section 2.2 (DeepSeek-AI 2024); names of tensors as published checkpoints have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twostroke.models.common.blocks.heads.ahead import AheadProgram, ahead_program
from twostroke.models.common.blocks.norm import Norm
from twostroke.models.common.registry import architecture_of
from twostroke.ops.products.embed import Embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.trace import StoredChoice, Tracer, nothing_stored
from twostroke.ops.program.values import Value, Weight, join
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.rows.rms_norm import RmsNorm
from twostroke.types.spec.fields import Fields

MOST_LAYERS = 8
"""The most prediction layers of a checkpoint, which is also the largest number of tokens guessed."""

NAMES_ALONE = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
"""The names of both norms, the product and the last norm in files that store them once, outside the prediction layers
(Qwen3-Next, EXAONE MoE)."""

PredictionLayer = Callable[[Tracer, Value], Value]
"""The body of a prediction layer (MTP): layer(trace, residual) returns the residual after the layer."""


@dataclass(frozen=True, slots=True)
class MtpHead:
    """A prediction layer. norm: the kind of its norms. prefix: the beginning of the names of the norms and of the
    product. layer_prefix: the beginning of the names of the layer's own tensors. word, state: the names of the norms of
    the token's embedding and of the hidden state. joined: the name of the product that reads both. last: the name of
    the norm after the layer."""

    norm: Norm
    layer: PredictionLayer
    prefix: str
    layer_prefix: str
    word: str = "enorm"
    state: str = "hnorm"
    joined: str = "eh_proj"
    last: str = "shared_head.norm"


PredictionReader = Callable[[Fields], Sequence[MtpHead]]
_readers: dict[str, PredictionReader] = {}


def predicts(*names: str) -> Callable[[PredictionReader], PredictionReader]:
    """Registers the function that reads the prediction layers (MTP) of these architectures. The function returns the
    layers in order, and an empty sequence for a config whose model has none."""

    def add(read: PredictionReader) -> PredictionReader:
        _readers.update(dict.fromkeys(names, read))
        return read

    return add


def read_prediction(fields: Fields) -> Sequence[MtpHead]:
    """Reads the layers of a config.json that predict further tokens (MTP); none where its architecture or the config
    has no such layers."""
    read = _readers.get(architecture_of(fields))  # architecture_of imports the model files, which register readers
    return () if read is None else read(fields)


def behind_the_last(fields: Fields, norm: Norm, layer: PredictionLayer) -> tuple[MtpHead, ...]:
    """Reads the layers that predict further tokens (MTP), where their numbers follow those of the model's layers
    (DeepSeek-V3, GLM-4.5)."""
    first = fields.integer("num_hidden_layers", 1, 4096)
    count = fields.integer("num_nextn_predict_layers", 0, MOST_LAYERS, default=1)
    prefixes = [f"model.layers.{number}." for number in range(first, first + count)]
    return tuple(MtpHead(norm, layer, prefix, prefix) for prefix in prefixes)


def prediction_program(
    prediction: MtpHead,
    hidden_size: int,
    embedding: Weight,
    matrix: Weight,
    stored: StoredChoice = nothing_stored,
) -> AheadProgram:
    """Returns the program of a prediction layer. embedding, matrix: the model's embedding and output matrix. stored:
    chooses for a matrix the format that keeps the checkpoint's numbers."""
    t = Tracer(stored)
    norm, states = prediction.norm, t.given(hidden_size)
    word = states.fresh()
    t.record(Embed(word, embedding, t.token_ids))
    both = states.fresh(2 * hidden_size)
    halves = both.split(hidden_size, hidden_size)
    with t.layer(prediction.prefix):
        for half, x, name in zip(halves, (word, states), (prediction.word, prediction.state), strict=True):
            t.record(RmsNorm(half, x, t.vector(name, hidden_size, plus=norm.plus), norm.eps))
        x = linear(join(*halves), t.matrix("joined", {prediction.joined: hidden_size}, 2 * hidden_size))
    with t.layer(prediction.layer_prefix):
        x = prediction.layer(t, x)
    with t.layer(prediction.prefix):
        rows = norm(t, prediction.last, x)
        own = gather_rows(rows, t.logit_rows)
    return ahead_program(t.program(linear(own, matrix), kept=(rows, own)), states, own, (embedding, matrix), rows)
