"""with_lost_parts: the program that adds to each product with rounded weights what their rounding loses.

A matrix W is kept as two matrices of int8: W rounded, and what rounding loses of W, rounded again. Both multiply the
same inputs, and the second product is added to the result of the first. Together they have about 15 bits a weight. The
inputs are rounded as before. No op or kernel is added.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.ops.products.linear import Linear
from twostroke.ops.products.linear_add import LinearAdd
from twostroke.ops.program.check import check
from twostroke.ops.program.op import FormatChoice, Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.substitute import Substitution
from twostroke.ops.program.values import Weight
from twostroke.types.spec.formats import WeightKind


def with_lost_parts(program: Program, format_for: FormatChoice) -> Program:
    """Returns the program in which each product with an int8 matrix is followed by a second product with another int8
    matrix: the rounding error of the first one. Both have the same inputs, and their results are added. format_for:
    returns the format of each matrix, also of the added ones."""
    parts: dict[Weight, Weight] = {}
    calls: list[Op] = []
    later = Substitution(program.logits, program.logits)
    for given in program.calls:
        call = later.call(given)
        calls.append(call)
        if isinstance(call, (Linear, LinearAdd)) and isinstance(given, (Linear, LinearAdd)):
            weight, chosen = call.weight, format_for(call.weight)
            if chosen.kind is WeightKind.INT8:
                if weight not in parts:
                    parts[weight] = replace(weight, key=f"{weight.key}:lost", bias=(), lost_by=chosen)
                out = call.out.written()
                calls.append(LinearAdd(out, call.x, parts[weight]))
                later.replace_too(given.out, out)
    kept = tuple(map(later.value, program.kept))
    made = Program.of(tuple(calls), later.value(program.logits), program.given, kept)
    check(made)
    return made
