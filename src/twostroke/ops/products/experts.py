"""experts: feed-forward blocks of which each row uses a few (Shazeer et al. 2017).

    out (T, N) float32 = sum over the row's experts e, in the order of their numbers, of weight_e * f_e(x), or of
                         f_e(weight_e * x) where weigh_inputs is not 0 (Llama 4);
    f_e(x) = down_e(act(gate_up_e(x)))

act: the op `gate` with `activation`, `limit`, `shift` and `hold_values` where gate_up has twice as many rows as down
has columns, else the op `activate` with `activation`.

routes (T, 2 k) holds weights and experts' numbers as route.py writes them. Numbers from E to E + idle - 1 belong to
experts that this op leaves out: they add nothing, and weigh_inputs is 0 then. idle_share.py computes their share. A
number that belongs to no expert, or that a row of routes has twice, is refused. gate_up is a bank of E matrices,
(2 F, D) or (F, D), down one of E matrices, (N, F), N <= D, E <= 1,024. Both products are computed as in linear_silu.py
and linear.py, with rounding. Then each element of an expert's output is multiplied by its weight and added to the row's
sum. One row's result depends on that row alone, and not on the other rows of the same expert.

rows (T, D), middle (T, F) or (T, 2 F) and pairs (T, 2) are scratch memory for the rows of one expert. Only the
reference needs it: kernels take several experts at once and have memory of their own. Its content afterwards is
undefined. middle has 2 F columns where there is a gate other than silu(gate) * up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twostroke.cost.work import Work
from twostroke.ops.cases import CODES, FLOATS, grid, routes
from twostroke.ops.operands import F32Array, PackedWeight
from twostroke.ops.products import linear, linear_silu
from twostroke.ops.program.op import CallArrays, Op, OpCost, OpPart, StoredFormats, op
from twostroke.ops.program.values import Value, Weight
from twostroke.ops.rows import gate, pointwise
from twostroke.ops.rows.activation import Activation

GATE_FLOPS = 5
"""The FLOPs of silu(gate) * up for one element, as in linear_silu.py."""


def reference(call: CallArrays) -> None:
    """Computes the op in NumPy, as the module defines it. Raises ValueError for numbers that belong to no expert."""
    out, x, routes, gate_up, down, rows, middle, pairs, activation, limit, shift, weigh_inputs, idle, hold_values = call
    weights, numbers = np.split(routes, 2, axis=1)
    chosen = numbers.astype(np.int64)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= gate_up.experts + idle):
        raise ValueError(f"routes name experts that are not among the {gate_up.experts}")
    out[...] = 0.0
    for expert in np.unique(chosen[chosen < gate_up.experts]):
        met, place = np.nonzero(chosen == expert)
        count = len(met)
        pairs[:count, 0], pairs[:count, 1] = met, weights[met, place]
        rows[:count] = x[met] * pairs[:count, 1:] if weigh_inputs else x[met]
        matrix, inner = gate_up.expert(expert), middle[:count, : down.columns]
        activated(inner, rows[:count], matrix, middle[:count], (activation, limit, shift, hold_values))
        made = rows[:count, : out.shape[1]]
        linear.reference(made, inner, down.expert(expert))
        out[met] += made if weigh_inputs else pairs[:count, 1:] * made


def activated(
    inner: F32Array,
    rows: F32Array,
    matrix: PackedWeight,
    middle: F32Array,
    act: tuple[int, float, float, int],
) -> None:
    """Computes one expert's inner values: inner (n, F) = act(rows @ gate_up.T). matrix: the expert's gate_up. middle:
    scratch memory (n, 2 F) or (n, F). act: the arguments activation, limit, shift, hold_values of the op `gate`."""
    if matrix.rows == inner.shape[1]:
        linear.reference(inner, rows, matrix)
        pointwise.reference(inner, pointwise.program_of(pointwise.activation_step(act[0])))
    elif middle.shape[1] == inner.shape[1]:
        linear_silu.reference(inner, rows, matrix)
    else:
        linear.reference(middle, rows, matrix)
        gate.reference(inner, middle, *act)


_KINDS: tuple[dict[str, object], ...] = (
    {},
    {"middle": "2 F", "activation": Activation.QUICK_GELU, "limit": 1.5, "shift": 1.0},
    {"middle": "2 F", "limit": 0.6, "hold_values": 1},
    {"weigh_inputs": 1},
    {"gate_up": "F", "activation": Activation.RELU2},
    {"idle": 3},
)
"""The activations and rules of the op's test cases. Each is tested with several sizes."""


@op
class Experts(Op):
    """The weighted sum of the chosen experts."""

    SHAPES = {
        "out": "T N",
        "x": "T D",
        "routes": "T 2C",
        "gate_up": "* D",
        "down": "* F",
        "rows": "T D",
        "middle": "T *",
        "pairs": "T 2",
    }
    CASES = tuple(
        grid(
            tolerance, T=(3, 70), D=(40, 130), N="D", F=(1, 65), C=(1, 3), bank=6,
            routes=routes("9" if "idle" in kind else "6"),
            **{"formats": formats, "gate_up": "2 F", "down": "N", "middle": "F"} | kind,
        )
        for tolerance, formats in ((2e-5, FLOATS), (0.03, CODES))
        for kind in _KINDS
    )  # fmt: skip
    PART = OpPart.PRODUCT
    SCRATCH = ("rows", "middle", "pairs")
    DIVIDED_WEIGHT = "down"

    out: Value
    x: Value
    routes: Value
    gate_up: Weight
    down: Weight
    rows: Value
    middle: Value
    pairs: Value
    activation: int = Activation.SILU
    limit: float = 0.0
    shift: float = 0.0
    weigh_inputs: int = 0
    idle: int = 0
    hold_values: int = 0

    @property
    def experts_of_a_row(self) -> int:
        return self.routes.width // 2

    def cost(self, formats: StoredFormats) -> OpCost:
        """Counts for each expert of a row: its products, its gate, and the row's copy to the expert and addition to the
        result. The bytes of the matrices are counted by `ExpertBank` in cost/work_table.py, because they depend on how
        many experts the rows of a step use."""
        width, inner = self.x.width, self.down.columns
        flops = 2 * (self.gate_up.rows + inner) * width + GATE_FLOPS * inner + 2 * width
        moved = 4 * (7 * width + 2 * inner)
        return OpCost(per_row=Work(flops, activation_bytes=moved).times(self.experts_of_a_row))


@dataclass(frozen=True, slots=True)
class ExpertRule:
    """How an expert computes its result. activation, limit, shift, hold_values: the arguments of the op `gate` between
    its products. weigh_inputs: whether the router's weight multiplies the expert's inputs, not its outputs. idle: how
    many more experts the router may choose that compute nothing."""

    activation: Activation = Activation.SILU
    limit: float = 0.0
    shift: float = 0.0
    weigh_inputs: bool = False
    idle: int = 0
    hold_values: bool = False


SWIGLU = ExpertRule()


def experts(x: Value, routes: Value, gate_up: Weight, down: Weight, rule: ExpertRule = SWIGLU) -> Value:
    """Records the call and returns the weighted sum over each row's experts. Raises ValueError where the banks do not
    fit each other."""
    inner = down.columns
    fits = gate_up.experts == down.experts > 0 and gate_up.rows in (inner, 2 * inner) and down.rows == x.width
    if not fits:
        raise ValueError(f"banks of {gate_up.experts} and {down.experts} matrices do not make feed-forward blocks")
    plain = gate_up.rows == inner or (rule.activation == Activation.SILU and not rule.limit and not rule.shift)
    out = x.fresh()
    room = x.fresh(x.width), x.fresh(inner if plain else 2 * inner), x.fresh(2)
    act = int(rule.activation), rule.limit, rule.shift
    more = int(rule.weigh_inputs), rule.idle, int(rule.hold_values)
    x.trace.record(Experts(out, x.flat(), routes, gate_up, down, *room, *act, *more))
    return out
