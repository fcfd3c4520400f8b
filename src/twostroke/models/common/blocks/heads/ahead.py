"""A draft layer of a model: from the model's hidden state at t and the token t + 1 it guesses the token t + 2.

The layer also makes a hidden state, so it can go on from its own results.
"""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Value, Weight


@dataclass(frozen=True, eq=False, slots=True)
class AheadProgram:
    """The program of a draft layer. states: (T, D), filled before each call with the hidden states from which the layer
    guesses: the model's, or `own` of an earlier call. own: (R, D), the hidden states that the layer itself makes at the
    R positions with logits. rows: (T, D), the same at all positions; None where they are not computed. shared: the
    model's matrices that the layer uses."""

    plain: Program
    program: Program
    states: Value
    own: Value
    shared: tuple[Weight, ...]
    rows: Value | None = None


def ahead_program(
    plain: Program, states: Value, own: Value, shared: tuple[Weight, ...], rows: Value | None = None
) -> AheadProgram:
    """Fuses and checks the program of a draft layer. Returns the result with the values that the caller fills
    (`states`) or reads (`own`, `rows`); see AheadProgram."""
    program = fuse(plain, PATTERNS)
    check(program)
    return AheadProgram(plain, program, states, own, tuple(dict.fromkeys(shared)), rows)
