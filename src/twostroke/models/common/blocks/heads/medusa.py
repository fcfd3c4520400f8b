"""Medusa heads: each guesses one of the next tokens from the last hidden state (Cai et al. 2024).

    head k: x = h; x = x + silu(W x + b) for each of its layers; logits of the token k + 2 places after h: M x

M is a matrix of the head's own, or the model's (`original_lm_head` in config.json). Tensors are named as in
medusa_lm_head.safetensors: 0.0.linear.weight, 0.0.linear.bias, 0.1.weight for a head of one layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.ops.products.linear import Linear, linear
from twostroke.ops.program.check import check
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value, Weight, join
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add
from twostroke.types.spec.fields import Fields

MOST_HEADS, MOST_LAYERS = 16, 16
FILE_NAME = "medusa_lm_head.safetensors"


@dataclass(frozen=True, slots=True)
class MedusaConfig:
    """The sizes of Medusa heads. own_matrix: whether each head has an output matrix of its own, in place of the
    model's."""

    num_heads: int
    num_layers: int
    own_matrix: bool


def read_medusa(fields: Fields) -> MedusaConfig:
    """Reads the Medusa heads of a config.json. Raises CorruptModel, which names the field."""
    return MedusaConfig(
        fields.integer("medusa_num_heads", 1, MOST_HEADS),
        fields.integer("medusa_num_layers", 1, MOST_LAYERS),
        not fields.boolean("original_lm_head", False),
    )


@dataclass(frozen=True, eq=False, slots=True)
class MedusaProgram:
    """hidden: (T, D), filled before each call with a row for each stream. program.logits: (T, heads * V), with the
    logits of the first head first. shared: the model's output matrix, where the heads read it."""

    program: Program
    hidden: Value
    num_heads: int
    shared: Weight | None


def medusa_program(config: MedusaConfig, hidden_size: int, matrix: Weight) -> MedusaProgram:
    """Returns the program of the Medusa heads. matrix: the model's output matrix, which gives the vocabulary."""
    t = Tracer()
    hidden = t.given(hidden_size)
    vocab = matrix.rows
    logits = hidden.fresh(config.num_heads * vocab)
    parts: list[Value] = []
    for head in range(config.num_heads):
        x = hidden
        for layer in range(config.num_layers):
            block = t.matrix("medusa", {f"{head}.{layer}.linear": hidden_size}, hidden_size, bias=True)
            x = add(activate(linear(x, block), Activation.SILU), x)
        own = t.matrix("head", {f"{head}.{config.num_layers}": vocab}, hidden_size) if config.own_matrix else matrix
        parts.append(logits.columns(head * vocab, vocab))
        t.record(Linear(parts[-1], x, own))
    program = t.program(join(*parts))
    check(program)
    return MedusaProgram(program, hidden, config.num_heads, None if config.own_matrix else matrix)
