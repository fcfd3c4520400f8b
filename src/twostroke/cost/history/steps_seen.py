"""Compares the steps of this engine with their predictions: the usual ratio, and the first steps, which take longer."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from twostroke.cost.history.step_history import Sample, StepHistory, device_seconds
from twostroke.cost.shape import StepCost

COLD_STEPS = 8
"""The number of an engine's first steps that may be slow: code, weights and buffers are touched for the first time."""

COLD_FACTOR = 1.3
LATEST_RUNS = 64


@dataclass(frozen=True, slots=True)
class Cold:
    """The seconds that an engine's first steps took more than usual."""

    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepsSeen:
    """How much longer steps usually take than the cost model predicts: the median of measured / predicted seconds.
    prefill: for steps with chunks of prompts. decode: for steps that only decode. None where there were no such steps.
    """

    prefill: float | None
    decode: float | None

    @classmethod
    def of(cls, history: StepHistory, cost: StepCost, otherwise: float | None) -> StepsSeen:
        """Returns the median ratios of measured to predicted seconds over the latest steps, without the engine's first
        steps. otherwise: the ratio to take where no steps of a kind were among them."""
        ratios: dict[bool, list[float]] = {True: [], False: []}
        for sample in history.latest(LATEST_RUNS):
            if sample.ordinal > COLD_STEPS:
                ratios[sample.has_chunks].append(sample.busy_s / _predicted_s(sample, cost))
        found = {kind: median(values) if values else otherwise for kind, values in ratios.items()}
        return cls(found[True], found[False])

    def cold(self, history: StepHistory, cost: StepCost, since: int) -> Cold:
        """Returns how many seconds longer the engine's first steps took than steps usually take, by the ratios of this
        object. since: the number of the first step that counts."""
        prefill_s = decode_s = 0.0
        for ordinal in range(since, COLD_STEPS + 1):
            sample = history.sample(ordinal)
            if sample is None or sample.ordinal != ordinal:
                continue
            ratio = self.prefill if sample.has_chunks else self.decode
            if ratio is None:
                continue
            usual_s = _predicted_s(sample, cost) * ratio
            if sample.busy_s < COLD_FACTOR * usual_s:
                continue
            if sample.has_chunks:
                prefill_s += sample.busy_s - usual_s
            else:
                decode_s += sample.busy_s - usual_s
        return Cold(prefill_s, decode_s)


def _predicted_s(sample: Sample, cost: StepCost) -> float:
    return max(1e-9, device_seconds(cost.predict(sample.segments)))
