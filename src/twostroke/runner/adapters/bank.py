"""The arrays that hold adapters: for each adapted tensor a bank of matrices, with a place (slot) for each adapter.

A slot must not be filled while a step computes rows with the adapter that is in it. All banks lie in one array. Where
the system puts this array into large pages, a step reads adapters faster.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from twostroke.ops.device_memory import HOST, DeviceMemory
from twostroke.ops.operands import F32Array, PackedWeight, pack_columns, pack_floats
from twostroke.ops.passes.with_adapters import AdaptedPart
from twostroke.ops.program.values import Weight
from twostroke.ops.quant.codec import quantize_columns
from twostroke.runner.adapters.lora_folder import LoraFolder
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import WeightFormat


def bank_bytes(parts: Iterable[AdaptedPart], weight_format: WeightFormat) -> int:
    """Returns the bytes that the banks of these parts take once all slots are filled."""
    banks = (bank for part in parts for bank in (part.down, part.up))
    return sum(bank.experts * weight_format.total_bytes(bank.rows, bank.columns) for bank in banks)


class AdapterBank:
    """The memory of all adapters. matrices: the banks. vectors: the ranks of the adapters in the slots, a vector for
    each adapted module. Both are mappings by keys that only the program with adapters has, not the model itself.
    memory: the device's memory that holds them. The host keeps a copy of each vector of ranks: when one adapter's rank
    changes, the whole vector is written again."""

    def __init__(
        self, parts: tuple[AdaptedPart, ...], weight_format: WeightFormat, memory: DeviceMemory = HOST
    ) -> None:
        self._parts, self._memory = parts, memory
        self.matrices = _empty([bank for part in parts for bank in (part.down, part.up)], weight_format, memory)
        self._ranks = {part.ranks.key: np.zeros(part.ranks.length, np.float32) for part in parts}
        self.vectors: dict[str, F32Array] = {
            key: memory.zeros(ranks.nbytes).view(np.float32) for key, ranks in self._ranks.items()
        }
        self.count = parts[0].ranks.length if parts else 0

    def require_room(self, folder: LoraFolder) -> None:
        """Raises ConfigError where an adapter changes a module that has no bank, or has a larger rank than the module's
        bank."""
        rooms = {part.module: part.down.columns for part in self._parts}
        for name, module in folder.modules.items():
            if module.rank > rooms.get(name, 0):
                raise ConfigError(
                    f"It has the rank {module.rank} in {name}, and the engine has room for {rooms.get(name, 0)} there.",
                    fix="Start the engine with a larger --adapter-rank, or with this adapter.",
                )

    def fill(self, slot: int, folder: LoraFolder) -> None:
        """Puts an adapter into a slot. No row may be computed with the slot meanwhile. Raises ConfigError or
        CorruptModel.

        After an error the slot adds nothing to a product.
        """
        self.require_room(folder)
        for key in self._ranks:
            self._set_rank(key, slot, 0)
        for part in self._parts:
            if part.module in folder.modules:
                self._fill(slot, part, *folder.matrices(part.module))
        for part in self._parts:
            module = folder.modules.get(part.module)
            self._set_rank(part.ranks.key, slot, 0 if module is None else module.rank)

    def _set_rank(self, key: str, slot: int, rank: int) -> None:
        self._ranks[key][slot] = rank
        self._memory.write(self.vectors[key], self._ranks[key])

    def _fill(self, slot: int, part: AdaptedPart, down: F32Array, up: F32Array) -> None:
        tensor = part.tensor
        rows = up if tensor.order is None else up[list(tensor.order.index)]
        rows = rows if tensor.rows is None else rows[slice(*tensor.rows)]
        for weight, matrix in ((part.down, down.T), (part.up, rows)):
            room = np.zeros((weight.rows, weight.columns), np.float32)
            room[:, : matrix.shape[1]] = matrix
            own = self.matrices[weight.key].expert(slot)
            if own.scales is None:
                self._memory.write(own.data, pack_floats(room, own.format))
            else:
                numbers, scales = quantize_columns(room)
                self._memory.write(own.data, pack_columns(numbers))
                self._memory.write(own.scales, scales)


def _empty(banks: list[Weight], weight_format: WeightFormat, memory: DeviceMemory) -> dict[str, PackedWeight]:
    """Makes banks of zeros, and returns them by the banks' keys in the program. On the host, the system provides memory
    for them when they are first written. Every size is a whole number of cache lines."""
    sizes = [bank.experts * weight_format.data_bytes(bank.rows, bank.columns) for bank in banks]
    room, made, end = memory.zeros(sum(sizes)), dict[str, PackedWeight](), 0
    for bank, size in zip(banks, sizes, strict=True):
        scale_bytes = bank.experts * weight_format.scale_bytes(bank.rows, bank.columns)
        scales = memory.zeros(scale_bytes).view(np.uint16) if scale_bytes else None
        data, end = room[end : end + size], end + size
        made[bank.key] = PackedWeight(weight_format, bank.rows, bank.columns, data, scales, experts=bank.experts)
    return made
