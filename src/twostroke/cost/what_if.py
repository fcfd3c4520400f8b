"""The cost of a model as it runs here, and as it would be in other formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twostroke.cost.calibration import Calibration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import StepCost
from twostroke.cost.work_table import WorkTable
from twostroke.types.errors import ConfigError
from twostroke.types.first_use.made_once import made_once
from twostroke.types.spec.formats import KVKind, WeightFormat
from twostroke.types.spec.hardware import HardwareSpec


@dataclass(frozen=True)
class WhatIf:
    """Predicts the steps of a model with its present formats, and with other formats. table_of: takes the name of a
    weight format and a kind of KV cache, and returns the FLOPs and bytes of the model's steps.

    formats: all weight formats that may be chosen, by name. weights: the name of the weight format in use. kv_kind: the
    kind of the KV cache in use. machine: the measured machine, an entry of the catalogue, or a guess.
    """

    table_of: Callable[[str, KVKind], WorkTable]
    formats: Mapping[str, WeightFormat]
    weights: str
    kv_kind: KVKind
    machine: Calibration | HardwareSpec
    _made: dict[str, StepCost | None] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """True where the figures of the machine, from which step times are predicted, were measured on this machine."""
        return isinstance(self.machine, Calibration)

    @property
    def source(self) -> str:
        """Names the machine and where its figures come from, in words."""
        if isinstance(self.machine, Calibration):
            return f"{self.machine.title}, as `twostroke doctor` measured it"
        return f"{self.machine.title} ({self.machine.source})"

    @made_once
    def now(self) -> StepCost:
        """The cost of steps with the formats in use. Raises ConfigError where the machine was not measured with these
        formats."""
        return step_cost(self.table_of(self.weights, self.kv_kind), self.machine)

    def narrower_weights(self) -> dict[str, StepCost]:
        """Returns, for each weight format with fewer bits a weight than the present one, the object that predicts steps
        with it; by name, the widest first."""
        if self.weights not in self.formats:
            return {}  # the weights are as the file has them: which formats are narrower depends on the matrix
        present = self.formats[self.weights].bits_per_weight
        names = [name for name, each in self.formats.items() if each.bits_per_weight < present]
        names.sort(key=lambda name: -self.formats[name].bits_per_weight)
        return self._known({name: (name, self.kv_kind) for name in names})

    def narrower_kv(self) -> dict[str, StepCost]:
        """Returns, for each KV format with fewer bytes a token than the present one, the object that predicts steps
        with it; by name, the widest first."""
        token_bytes = {kind: self.table_of(self.weights, kind).kv_token_bytes for kind in KVKind}
        kinds = [kind for kind in KVKind if token_bytes[kind] < token_bytes[self.kv_kind]]
        kinds.sort(key=lambda kind: -token_bytes[kind])
        return self._known({kind.name.lower(): (self.weights, kind) for kind in kinds})

    def _known(self, wanted: Mapping[str, tuple[str, KVKind]]) -> dict[str, StepCost]:
        made = {name: self._cost(*formats) for name, formats in wanted.items()}
        return {name: cost for name, cost in made.items() if cost is not None}

    def _cost(self, weights: str, kv_kind: KVKind) -> StepCost | None:
        """Returns the object that predicts steps with these formats; None when the machine was not measured with
        them."""
        key = f"{weights} {kv_kind.name}"
        if key not in self._made:
            try:
                self._made[key] = step_cost(self.table_of(weights, kv_kind), self.machine)
            except ConfigError:
                self._made[key] = None
        return self._made[key]
