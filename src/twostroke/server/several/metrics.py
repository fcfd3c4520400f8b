"""/metrics of several models: the metric families of each model, with its name as a label, and those of the whole
server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twostroke.distributed.fleet.loading import ModelState
from twostroke.server.gate.door_metrics import DoorCollector
from twostroke.server.several.models import Models

LABEL = "model_name"
OF_SERVER = ("twostroke_http_responses",)
"""Metrics that are counted once for the whole server; those of single models have no values and are left out."""


def all_metrics(models: Models) -> bytes:
    """Returns all metrics of the server and of its models, in the exposition format of Prometheus, version 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_AllModels(models))
    return generate_latest(registry)


class _AllModels(Collector):
    def __init__(self, models: Models) -> None:
        self._models = models

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields each metric family once, with the samples of all models."""
        shared = self._models.shared
        yield from shared.telemetry.metrics.responses.collect()
        yield from DoorCollector(shared.admission.door, shared.admission.bodies).collect()
        yield from _states(self._models)
        parts = [(group.name, group.parts) for group in self._models.groups.values()]
        yield from together((name, own.telemetry.metrics.families()) for name, own in parts if own is not None)


def together(named: Iterable[tuple[str, Iterable[Metric]]]) -> list[Metric]:
    """Joins the metric families of several models: each sample gets the name of its model as a label. Metrics that are
    counted for the whole server are left out."""
    found: dict[str, Metric] = {}
    for name, families in named:
        for family in families:
            if family.name in OF_SERVER:
                continue
            if family.name not in found:
                found[family.name] = copy(family)
                found[family.name].samples = []
            labelled = (sample._replace(labels={LABEL: name, **sample.labels}) for sample in family.samples)
            found[family.name].samples += labelled
    return list(found.values())


def _states(models: Models) -> Iterator[Metric]:
    state = GaugeMetricFamily("twostroke_model_state", "1: the model is in this state.", labels=[LABEL, "state"])
    size = GaugeMetricFamily("twostroke_model_bytes", "Memory that the model's process has.", labels=[LABEL])
    for group in models.groups.values():
        now = models.state(group)
        for each in ModelState:
            state.add_metric([group.name, each.value], float(each is now))
        held = models.loading[group.name] if group.name in models.loading else None
        size.add_metric([group.name], held.need_bytes if held is not None and held.has_process else 0)
    yield state
    yield size
    yield GaugeMetricFamily("twostroke_models_room_bytes", "Memory for all models.", value=models.loading.room_bytes)
