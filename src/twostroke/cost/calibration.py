"""Calibration contains the figures that `twostroke doctor` measured on a machine; they predict step times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from msgspec import Struct

from twostroke.cost.curve import Curve
from twostroke.types.spec.formats import KVKind, WeightKind

VERSION = 5
"""The version of the JSON form. A file of another version is measured again."""

DISTURBED_SHARE = 0.1

Value = TypeVar("Value")


class LinearRates(Struct, frozen=True):
    """The seconds of matrix products as curves over the number of rows. A curve's y is for all these rows together.

    cold: seconds for each weight of the matrix, where weights come from memory. warm: the same where weights stay in
    the last-level cache between steps. features: further seconds for each row and each input or output feature, which
    matter only for small matrices.
    """

    cold: Curve
    warm: Curve
    features: Curve


class AttentionRates(Struct, frozen=True):
    """The measured speed of attention. A decoding sequence (one new row) takes KV bytes * decode_s_per_byte + FLOPs *
    decode_s_per_flop + KV heads * decode_s_per_head seconds. decode_warm_s_per_byte: the rate when K and V stay in the
    processor's caches between steps.

    prefill: the seconds for each FLOP, as a curve over the rows of one sequence. A visible position has 4 FLOPs for
    each head and dimension. prefill_s_per_head: the seconds in addition, for each row and query head.
    """

    decode_s_per_byte: float
    decode_warm_s_per_byte: float
    decode_s_per_flop: float
    decode_s_per_head: float
    prefill_s_per_head: float
    prefill: Curve


class HostRates(Struct, frozen=True):
    """The seconds that a step takes in addition to its kernels, most of them in Python.

    step_s: for each step. sequence_s: for each sequence. logit_s: for each logit of a sampled row. prompt_s: for each
    sequence with more than one row. row_s: for each of the rows of such a sequence.
    """

    step_s: float
    sequence_s: float
    logit_s: float
    prompt_s: float = 0.0
    row_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ExchangeRates:
    """The speed at which two ranks of this machine exchange rows.

    meeting_s: seconds of one exchange that carries almost no bytes. bytes_per_s: bytes a second of a large exchange.
    """

    meeting_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one machine with a number of threads. fingerprint: identifies the processor, the threads and the
    version; figures with another fingerprint are stale.

    read_bytes_per_s, f32_flops_per_s, int8_ops_per_s: the limits, from loops that do nothing else. memory_bytes: the
    memory that was available during the measurement. others_share: the share of the cores that other programs used
    meanwhile; a large share makes the figures unreliable. warm_bytes, cold_bytes: the bytes of weights and cached K and
    V that a step reads. Up to warm_bytes they stay in the processor's caches from step to step; from cold_bytes on they
    come from memory. layer_s: the seconds of starting the ops of one layer. other: the seconds for each activation byte
    that norms, rope and KV writes move, as a curve over the rows. exchange: the speed at which ranks of one model
    exchange rows; None in measurements of older versions.
    """

    fingerprint: str
    title: str
    threads: int
    memory_bytes: int
    others_share: float
    read_bytes_per_s: float
    f32_flops_per_s: float
    int8_ops_per_s: float
    warm_bytes: float
    cold_bytes: float
    linear: Mapping[WeightKind, LinearRates]
    attention: Mapping[KVKind, AttentionRates]
    other: Curve
    layer_s: float
    host: HostRates
    exchange: ExchangeRates | None = None

    @property
    def disturbed(self) -> bool:
        """Whether other programs used so much of the processor during the measurement that its rates are too low."""
        return self.others_share > DISTURBED_SHARE

    @property
    def bf16_flops_per_s(self) -> float:
        """Operations a second that products with bf16 weights and many rows reach; 0 where they were not measured."""
        rates = self.linear.get(WeightKind.BF16)
        return 2 * rates.cold.xs[-1] / rates.cold.ys[-1] if rates is not None and rates.cold.ys[-1] > 0 else 0.0

    def product_rate(self, kind: WeightKind) -> float:
        """Peak operations a second of products with weights of this kind, as measured by the limit loops."""
        return self.int8_ops_per_s if kind.arithmetic in (WeightKind.INT8, WeightKind.INT4) else self.f32_flops_per_s

    def as_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`."""
        return {
            "version": VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "linear": {
                kind.name.lower(): {name: _points(getattr(rates, name)) for name in _LINEAR}
                for kind, rates in self.linear.items()
            },
            "attention": {
                kind.name.lower(): {
                    **{name: getattr(rates, name) for name in _ATTENTION},
                    "prefill": _points(rates.prefill),
                }
                for kind, rates in self.attention.items()
            },
            "other": _points(self.other),
            "host": {name: getattr(self.host, name) for name in _HOST},
            **({} if self.exchange is None else {"exchange": asdict(self.exchange)}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Calibration:
        """The inverse of as_json. Raises ValueError for another version or a broken value."""
        try:
            if value["version"] != VERSION:
                raise ValueError(f"version {value['version']}, not {VERSION}")
            plain = {name: kind(value[name]) for name, kind in _PLAIN.items()}
            return cls(
                **plain,
                linear=_by_kind(value["linear"], WeightKind.__getitem__, _linear),
                attention=_by_kind(value["attention"], KVKind.__getitem__, _attention),
                other=_curve(value["other"]),
                host=HostRates(*(float(value["host"][name]) for name in _HOST)),
                exchange=_exchange(value.get("exchange")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a calibration: {type(error).__name__}: {error}") from None


_HOST = ("step_s", "sequence_s", "logit_s", "prompt_s", "row_s")
_LINEAR = ("cold", "warm", "features")
_ATTENTION = (
    "decode_s_per_byte",
    "decode_warm_s_per_byte",
    "decode_s_per_flop",
    "decode_s_per_head",
    "prefill_s_per_head",
)
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "fingerprint": str,
    "title": str,
    "threads": int,
    "memory_bytes": int,
    "others_share": float,
    "read_bytes_per_s": float,
    "f32_flops_per_s": float,
    "int8_ops_per_s": float,
    "warm_bytes": float,
    "cold_bytes": float,
    "layer_s": float,
}


def _points(curve: Curve) -> list[list[float]]:
    return [[x, y] for x, y in zip(curve.xs, curve.ys, strict=True)]


def _curve(points: Any) -> Curve:
    return Curve.of([(float(x), float(y)) for x, y in points])


def _linear(value: Any) -> LinearRates:
    return LinearRates(*(_curve(value[name]) for name in _LINEAR))


def _attention(value: Any) -> AttentionRates:
    byte_s, warm_s, flop_s, head_s, row_s = (float(value[name]) for name in _ATTENTION)
    return AttentionRates(byte_s, warm_s, flop_s, head_s, row_s, _curve(value["prefill"]))


def _exchange(value: Any) -> ExchangeRates | None:
    return None if value is None else ExchangeRates(float(value["meeting_s"]), float(value["bytes_per_s"]))


def _by_kind(values: Any, kind: Callable[[str], Any], read: Callable[[Any], Value]) -> dict[Any, Value]:
    return {kind(name.upper()): read(value) for name, value in values.items()}
