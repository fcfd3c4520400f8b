"""The unit of cost: FLOPs and bytes by kind, which add up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs (a multiply-add counts 2), and the bytes moved for weights, for the KV cache, and for activations."""

    flops: int = 0
    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.weight_bytes + other.weight_bytes,
            self.kv_bytes + other.kv_bytes,
            self.activation_bytes + other.activation_bytes,
        )

    def times(self, count: int) -> Work:
        """This work done `count` times."""
        return Work(self.flops * count, self.weight_bytes * count, self.kv_bytes * count, self.activation_bytes * count)

    @property
    def total_bytes(self) -> int:
        """Bytes of all kinds."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity_flops_per_byte(self) -> float:
        """Arithmetic intensity; 0 where nothing is moved."""
        return self.flops / self.total_bytes if self.total_bytes else 0.0
