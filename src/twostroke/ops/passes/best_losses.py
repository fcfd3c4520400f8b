"""with_best_losses: the program that adds to its largest logits what rounding of the head's inputs took from them (ADR
80).

With integer weights the head rounds its inputs to int8, which makes errors in the logits (called losses here). Samplers
and log probabilities depend on the largest logits of a row, which are few. So only their losses are computed, for each
row by itself.

Apply this pass to the program that the model file traced, and fuse afterwards.
"""

from __future__ import annotations

from twostroke.ops.products.add_losses import AddLosses
from twostroke.ops.products.best_losses import BEST, BestLosses
from twostroke.ops.products.linear import Linear
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.substitute import Substitution
from twostroke.ops.program.values import Size


def with_best_losses(program: Program) -> Program:
    """Returns the program with two calls after the head's product. best_losses computes the errors that the largest
    logits have because the head's inputs are rounded to int8, and add_losses corrects these logits. A program without
    such a product stays the same."""
    found = _head(program)
    if found is None:
        return program
    index, product = found
    logits = product.out.written()
    count = min(BEST, logits.width)
    losses = product.out.fresh(2 * count)
    added = (BestLosses(losses, product.out, product.x, product.weight), AddLosses(logits, losses, count))
    later = Substitution(product.out, logits)
    after = tuple(map(later.call, program.calls[index + 1 :]))
    calls: tuple[Op, ...] = (*program.calls[: index + 1], *added, *after)
    return Program.of(calls, later.value(program.logits), program.given, tuple(map(later.value, program.kept)))


def _head(program: Program) -> tuple[int, Linear] | None:
    """Returns the index of the product that makes the logits, and the product. Later calls may change the logits in
    place."""
    for index, call in enumerate(program.calls):
        if isinstance(call, Linear) and call.out.rows is Size.LOGIT_ROWS and call.out is program.logits.root:
            return index, call
    return None
