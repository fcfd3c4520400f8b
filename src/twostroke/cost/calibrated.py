"""StepCost of this machine: measured seconds by weight, by KV byte and by FLOP, put together for one model.

Knows: a Calibration, counts of a step.
Must not know: how the rates were measured, requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.cost.calibration import Calibration, LinearRates
from twostroke.cost.curve import Curve
from twostroke.cost.shape import Bound, PartPrediction, Segment, StepPrediction
from twostroke.cost.step_work import SegmentCounts, WorkCounter
from twostroke.cost.work import Work
from twostroke.spec.formats import KVKind, WeightKind
from twostroke.spec.model import LAYER_ROLES, FormatChoice, MatrixRole
from twostroke.types.errors import ConfigError

MEMORY_ROWS_FACTOR = 1.5
"""Products that take less than this many times what one row takes are bound by reading the weights."""


@dataclass(frozen=True, slots=True)
class _Product:
    """Seconds of products with some matrices by rows."""

    curve: Curve
    elements: int

    def seconds(self, rows: int) -> float:
        return self.curve.scaled_at(rows) * self.elements

    def bound(self, rows: int) -> Bound:
        near = self.curve.scaled_at(rows) < MEMORY_ROWS_FACTOR * self.curve.ys[0]
        return Bound.MEMORY if near else Bound.ARITHMETIC


class CalibratedCost:
    """Satisfies `cost.shape.StepCost`. Raises ConfigError for a format that was not measured."""

    def __init__(
        self, counter: WorkCounter, format_for: FormatChoice, kv_kind: KVKind, calibration: Calibration
    ) -> None:
        spec = counter.spec
        self._counter = counter
        self._warmth = _warmth(calibration, spec.weight_bytes(format_for))
        roles = {format_for(role).kind for role in LAYER_ROLES}
        self._layers = tuple(
            self._product(
                calibration,
                kind,
                sum(_elements(counter, role) for role in LAYER_ROLES if format_for(role).kind is kind),
            )
            for kind in roles
        )
        head_role = MatrixRole.EMBEDDING if spec.tied_embeddings else MatrixRole.HEAD
        self._head = self._product(calibration, format_for(head_role).kind, spec.vocab_size * spec.hidden_size)
        if kv_kind not in calibration.attention:
            raise _unmeasured(f"a KV cache in {kv_kind.name.lower()}")
        self._attention_rates = calibration.attention[kv_kind]
        self._other = calibration.other
        self._fixed_s = calibration.layer_s * spec.num_layers
        self._host = calibration.host
        self._vocab_size = spec.vocab_size

    def predict(self, segments: Sequence[Segment]) -> StepPrediction:
        """See StepCost."""
        counts = self._counter.count(segments)
        host_s = self._host.step_s + self._host.sequence_s * len(segments)
        host_s += self._host.logit_s * counts.logit_rows * self._vocab_size
        host = PartPrediction("host", host_s, Work(), Bound.HOST)
        if not segments:
            return StepPrediction((host,))
        work = self._counter.work(counts)
        rows, selected = counts.rows, counts.logit_rows
        products_s = sum(product.seconds(rows) for product in self._layers)
        attention_s, attention_bound = self._attention(counts)
        other_s = work.other.activation_bytes * self._other.at(rows) + self._fixed_s
        return StepPrediction(
            (
                PartPrediction("weights", products_s, work.weights, self._layers[0].bound(rows)),
                PartPrediction(
                    "head", self._head.seconds(selected) if selected else 0.0, work.head, self._head.bound(selected)
                ),
                PartPrediction("attention", attention_s, work.attention, attention_bound),
                PartPrediction("other", other_s, work.other, Bound.MEMORY),
                host,
            )
        )

    def _product(self, calibration: Calibration, kind: WeightKind, elements: int) -> _Product:
        if kind not in calibration.linear:
            raise _unmeasured(f"weights in {kind.name.lower()}")
        return _Product(_between(calibration.linear[kind], self._warmth), elements)

    def _attention(self, counts: SegmentCounts) -> tuple[float, Bound]:
        rates, counter = self._attention_rates, self._counter
        byte_s = counts.decode_positions * counter.kv_position_bytes * rates.decode_s_per_byte
        flop_s = counts.decode_pairs * counter.pair_flops * rates.decode_s_per_flop
        for rows, pairs in counts.chunks:
            flop_s += pairs * counter.pair_flops * rates.prefill.at(rows)
        return byte_s + flop_s, Bound.MEMORY if byte_s > flop_s else Bound.ARITHMETIC


def _elements(counter: WorkCounter, role: MatrixRole) -> int:
    rows, columns = counter.spec.matrix_shape(role)
    return rows * columns * counter.spec.num_layers


def _warmth(calibration: Calibration, weight_bytes: int) -> float:
    """1 where all weights stay in caches between steps, 0 where none do."""
    low, high = calibration.warm_bytes, calibration.cold_bytes
    return min(1.0, max(0.0, (high - weight_bytes) / (high - low)))


def _between(rates: LinearRates, warmth: float) -> Curve:
    xs = rates.cold.xs
    return Curve(
        xs, tuple(cold + warmth * (rates.warm.at(x) - cold) for x, cold in zip(xs, rates.cold.ys, strict=True))
    )


def _unmeasured(what: str) -> ConfigError:
    return ConfigError(
        f"This machine was not measured with {what}.",
        why="The kept measurement lacks it.",
        fix="Run `twostroke doctor --fresh`.",
    )
