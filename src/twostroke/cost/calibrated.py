"""StepCost of this machine: measured seconds by weight, by KV byte and by FLOP, put together for one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from twostroke.cost.calibration import Calibration, LinearRates
from twostroke.cost.shape import Bound, Part, PartPrediction, StepPrediction
from twostroke.cost.step_work import SegmentCounts, WorkCounter
from twostroke.cost.work import Work
from twostroke.cost.work_table import ExpertBank, Products
from twostroke.types.errors import ConfigError

MEMORY_ROWS_FACTOR = 1.5
"""A product that takes less than this many times the seconds of a product with one row is bound by reading weights."""


class _Product(Struct, frozen=True):
    """Predicts the seconds of products with some matrices, from the number of rows and from how much of the weights
    stays in caches.

    elements: the weights of these matrices together. features: their inputs and outputs together.
    """

    rates: LinearRates
    elements: int
    features: int

    def seconds(self, rows: int, warmth: float) -> float:
        features_s = self.rates.features.at(rows) * rows * self.features
        return self._weight_s(rows, warmth) * self.elements + features_s

    def bound(self, rows: int, warmth: float) -> Bound:
        near = self.seconds(rows, warmth) < MEMORY_ROWS_FACTOR * self.seconds(1, warmth)
        return Bound.MEMORY if near else Bound.ARITHMETIC

    def _weight_s(self, rows: int, warmth: float) -> float:
        cold_s = self.rates.cold.scaled_at(rows)
        return cold_s + warmth * (self.rates.warm.scaled_at(rows) - cold_s) if warmth else cold_s


class CalibratedCost:
    """Predicts steps of one model on a machine that was measured. Satisfies `cost.shape.SteadyCost`. Raises ConfigError
    for a format that was not measured."""

    def __init__(self, counter: WorkCounter, calibration: Calibration) -> None:
        table = counter.table
        kv_kind = table.kv_kind
        self._counter = counter
        self._weight_bytes = table.weight_bytes
        self._warm_bytes, self._cold_bytes = calibration.warm_bytes, calibration.cold_bytes
        self._layers = tuple(_product(calibration, products) for products in table.layer_products)
        self._banks = tuple((bank, _product(calibration, bank)) for bank in table.banks)
        adapters, instead = table.adapters.banks if table.adapters else (), self._layers[0].rates
        self._adapters = tuple(_product(calibration, bank, instead) for bank in adapters)
        self._head = _product(calibration, table.head_product)
        if kv_kind not in calibration.attention:
            raise _unmeasured(f"a KV cache in {kv_kind.name.lower()}")
        self._attention_rates = calibration.attention[kv_kind]
        self._other = calibration.other
        self._fixed_s = calibration.layer_s * table.num_layers
        self._host = calibration.host
        self._vocab_size = table.vocab_size

    def predict(self, segments: Sequence[Part]) -> StepPrediction:
        return self._step(self._counter.count(segments))

    def predict_beside(self, starts: Sequence[int], segments: Sequence[Part]) -> StepPrediction:
        return self._step(self._counter.count_beside(starts, segments))

    def _step(self, counts: SegmentCounts) -> StepPrediction:
        host_s = self._host_seconds(counts)
        host = PartPrediction("host", host_s, Work(), Bound.HOST)
        if not counts.rows:
            return StepPrediction((host,))
        work = self._counter.work(counts)
        rows, selected = counts.rows, counts.logit_rows
        warmth = self._warmth(work.attention.kv_bytes)
        attention_s, attention_bound = self._attention(counts, warmth)
        products_s, head_s = self._products(counts, warmth)
        other_s = self._other_seconds(counts, work.other)
        return StepPrediction(
            (
                PartPrediction("weights", products_s, work.weights, self._layers[0].bound(rows, warmth)),
                PartPrediction("head", head_s, work.head, self._head.bound(selected, warmth)),
                PartPrediction("attention", attention_s, work.attention, attention_bound),
                PartPrediction("other", other_s, work.other, Bound.MEMORY),
                host,
            )
        )

    def decode_run(self, starts: Sequence[int], steps: int) -> Iterator[float]:
        first = next(self._counter.decode_counts(starts, 1))
        other_s = self._other_seconds(first, self._counter.other(first))
        host_s = self._host_seconds(first)
        warmth_before = -1.0
        products_s = head_s = 0.0
        for counts in self._counter.decode_counts(starts, steps):
            warmth = self._warmth(counts.decode_bytes + self._state_bytes(counts))
            if warmth != warmth_before:
                (products_s, head_s), warmth_before = self._products(counts, warmth), warmth
            yield products_s + head_s + self._attention(counts, warmth)[0] + other_s + host_s

    def _host_seconds(self, counts: SegmentCounts) -> float:
        host, sequences = self._host, counts.decodes + len(counts.chunks)
        prompts_s = host.prompt_s * len(counts.chunks) + host.row_s * sum(chunk.rows for chunk in counts.chunks)
        sampling_s = host.logit_s * counts.logit_rows * self._vocab_size
        return host.step_s + host.sequence_s * sequences + prompts_s + sampling_s

    def _products(self, counts: SegmentCounts, warmth: float) -> tuple[float, float]:
        """Returns the seconds of the layers' products, and those of the head's product. warmth: the share of the
        weights that the caches keep from step to step, from 0 to 1."""
        layers_s = sum(product.seconds(counts.rows, warmth) for product in self._layers)
        for bank, product in self._banks:
            # The rows spread over the experts that they choose.
            touched = bank.touched(counts.rows)
            rows_of_one = max(1, round(counts.rows * bank.chosen / touched))
            layers_s += touched * product.seconds(rows_of_one, warmth)
        if counts.adapters:  # each adapter costs one product over the rows that use the adapter
            each = max(1, round(counts.adapted_rows / counts.adapters))
            layers_s += counts.adapters * sum(product.seconds(each, warmth) for product in self._adapters)
        return layers_s, self._head.seconds(counts.logit_rows, warmth) if counts.logit_rows else 0.0

    def _other_seconds(self, counts: SegmentCounts, other: Work) -> float:
        return other.activation_bytes * self._other.at(counts.rows) + self._fixed_s

    def _state_bytes(self, counts: SegmentCounts) -> int:
        return self._counter.table.sequence.kv_bytes * counts.sequences

    def _warmth(self, kv_bytes: int) -> float:
        """Returns 1 when all data that a step reads stays in the processor's caches until the next step, 0 when none
        does, and numbers between them."""
        read_bytes = self._weight_bytes + kv_bytes
        return min(1.0, max(0.0, (self._cold_bytes - read_bytes) / (self._cold_bytes - self._warm_bytes)))

    def _attention(self, counts: SegmentCounts, warmth: float) -> tuple[float, Bound]:
        rates, table = self._attention_rates, self._counter.table
        s_per_byte = rates.decode_s_per_byte + warmth * (rates.decode_warm_s_per_byte - rates.decode_s_per_byte)
        # States are read and written at the rate at which K and V are read. A scan's FLOPs take as long as those of one
        # decoding row.
        byte_s = (counts.decode_bytes + self._state_bytes(counts)) * s_per_byte
        flop_s = (counts.decode_flops + counts.rows * table.attention_row.flops) * rates.decode_s_per_flop
        flop_s += counts.decodes * table.heads * rates.decode_s_per_head
        for chunk in counts.chunks:
            chunk_s = chunk.flops * rates.prefill.at(chunk.rows)
            chunk_s += chunk.rows * table.query_heads * rates.prefill_s_per_head
            # A few rows over a long context read as many bytes as one row does.
            row_s = (chunk.pair_bytes * s_per_byte + chunk.flops * rates.decode_s_per_flop) / chunk.rows
            flop_s += max(chunk_s, row_s + table.heads * rates.decode_s_per_head)
        return byte_s + flop_s, Bound.MEMORY if byte_s > flop_s else Bound.ARITHMETIC


def _product(calibration: Calibration, products: Products | ExpertBank, instead: LinearRates | None = None) -> _Product:
    """Returns the rates and the size of these products. instead: the rates to use for small products in a weight format
    that was not measured."""
    rates = calibration.linear.get(products.kind, instead)
    if rates is None:
        raise _unmeasured(f"weights in {products.kind.name.lower()}")
    return _Product(rates, products.elements, products.features)


def _unmeasured(what: str) -> ConfigError:
    return ConfigError(
        f"This machine was not measured with {what}.",
        why="The kept measurement lacks it.",
        fix="Run `twostroke doctor --fresh`.",
    )
