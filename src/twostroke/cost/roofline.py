"""StepCost of published hardware: each part of a step takes as long as its arithmetic or its bytes, whichever is
slower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twostroke.cost.shape import Bound, Part, PartPrediction, StepPrediction
from twostroke.cost.step_work import SegmentCounts, WorkCounter
from twostroke.cost.work import Work
from twostroke.cost.work_table import WorkTable
from twostroke.types.spec.formats import WeightKind
from twostroke.types.spec.hardware import HardwareClass, HardwareSpec

REMEMBERED_STEPS = 4096


class RooflineCost:
    """Predicts steps on published hardware, whose peak rates are reduced by the efficiency of its class. Satisfies
    `cost.shape.SteadyCost`.

    A GPU may begin a step before the host has looked at the previous one, where each sequence has one row
    (`runner.device.early_runner`). Such a step takes as long as the GPU or the host needs, whichever is slower.
    """

    def __init__(self, counter: WorkCounter, hardware: HardwareSpec) -> None:
        shares = hardware.efficiency
        self._counter = counter
        table = counter.table
        head = table.head_product.kind
        self._layer_s_per_flop = 1 / (_rate(hardware, table) * shares.products)
        self._head_s_per_flop = 1 / (hardware.product_rate(head) * shares.products)
        self._attention_s_per_flop = 1 / (hardware.product_rate(WeightKind.BF16) * shares.attention)
        self._other_s_per_flop = 1 / (hardware.f32_flops_per_s * shares.attention)
        self._s_per_byte = 1 / (hardware.read_bytes_per_s * shares.memory)
        self._step_s, self._layers_s = shares.step_s, shares.layer_s * table.num_layers
        self._overlaps = hardware.kind is HardwareClass.GPU
        self._host_s = shares.step_s + shares.layer_s * table.num_layers
        self._host = PartPrediction("host", self._host_s, Work(), Bound.HOST)
        self._remembered: dict[tuple[int, ...], tuple[PartPrediction, PartPrediction, PartPrediction]] = {}

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        return self._step(self._counter.count(segments)) if segments else StepPrediction((self._host,))

    def predict_beside(self, starts: Sequence[int], segments: Sequence[Part]) -> StepPrediction:
        return self._step(self._counter.count_beside(starts, segments))

    def _step(self, counts: SegmentCounts) -> StepPrediction:
        weights, head, other = self._by_rows(counts)
        attention = self._part("attention", self._counter.attention(counts), self._attention_s_per_flop)
        host = self._host
        if self._overlaps and not counts.chunks:
            busy_s = weights.seconds + head.seconds + attention.seconds + other.seconds
            host = PartPrediction("host", self._beside_s(busy_s), Work(), Bound.HOST)
        return StepPrediction((weights, head, attention, other, host))

    def _beside_s(self, busy_s: float) -> float:
        """Returns the seconds that the host adds to a step with one row for each sequence. busy_s: the seconds of the
        step's other parts."""
        return max(self._layers_s, self._step_s - busy_s) if self._overlaps else self._host_s

    def decode_run(self, starts: Sequence[int], steps: int) -> Iterator[float]:
        counter = self._counter
        first = next(counter.decode_counts(starts, 1))
        weights_s, head_s, other_s = (part.seconds for part in self._by_rows(first))
        # Only attention changes from step to step, and only with the positions that it sees.
        before = counter.attention(first)
        moved, computed = before.total_bytes - first.decode_bytes, before.flops - first.decode_flops
        s_per_flop, s_per_byte = self._attention_s_per_flop, self._s_per_byte
        for flops, read_bytes in counter.decode_sums(starts, steps):
            attention_s = max((flops + computed) * s_per_flop, (read_bytes + moved) * s_per_byte)
            busy_s = weights_s + head_s + attention_s + other_s
            yield busy_s + self._beside_s(busy_s)

    def _by_rows(self, counts: SegmentCounts) -> tuple[PartPrediction, PartPrediction, PartPrediction]:
        """Predicts the parts (weights, head, other) of a step. They depend only on the numbers of rows in `counts`, so
        the predictions of up to REMEMBERED_STEPS different steps are remembered."""
        key = counts.rows, counts.logit_rows, counts.adapters, counts.adapted_rows
        found = self._remembered.get(key)
        if found is None:
            counter = self._counter
            found = (
                self._part("weights", counter.weights(counts.rows) + counter.adapters(counts), self._layer_s_per_flop),
                self._part("head", counter.head(counts.logit_rows), self._head_s_per_flop),
                self._part("other", counter.other(counts), self._other_s_per_flop),
            )
            if len(self._remembered) >= REMEMBERED_STEPS:
                self._remembered.clear()
            self._remembered[key] = found
        return found

    def _part(self, name: str, work: Work, s_per_flop: float) -> PartPrediction:
        arithmetic_s, memory_s = work.flops * s_per_flop, work.total_bytes * self._s_per_byte
        if arithmetic_s > memory_s:
            return PartPrediction(name, arithmetic_s, work, Bound.ARITHMETIC)
        return PartPrediction(name, memory_s, work, Bound.MEMORY)


def _rate(hardware: HardwareSpec, table: WorkTable) -> float:
    """Returns the FLOPs a second of a row's products with weights of several kinds. The experts that a row chooses
    count, and no others."""
    elements: dict[WeightKind, int] = {}
    for product in table.layer_products:
        elements[product.kind] = elements.get(product.kind, 0) + product.elements
    for bank in table.banks:
        elements[bank.kind] = elements.get(bank.kind, 0) + bank.chosen * bank.elements
    if len(elements) == 1:
        return hardware.product_rate(*elements)
    seconds = sum(count / hardware.product_rate(kind) for kind, count in elements.items())
    return sum(elements.values()) / seconds
